/* What faulty libraries do.  Each function is one fault; the names are those that stacks show. */

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the heap */
#define BLOCK 40000 /* above what the allocator keeps in lists of its own, so that neighbours are neighbours */

/* Writes behind the end of a block, over the header of the next one, which is freed later. */
void heap_overrun(size_t bytes)
{
    for (int tries = 0; tries < 64; tries++) {
        char *table = malloc(BLOCK), *next = malloc(BLOCK);
        if (!table || !next || next < table || next > table + BLOCK + 64)
            continue; /* something else lies between them */
        memset(table, 'X', BLOCK + bytes);
        free(next);
        return;
    }
}

/* A view into a block whose owner grows: the C library gives the old place of so large a block back. */
#define OWNED (8 << 20)

static char *owner, *view;

void take_view(void)
{
    owner = malloc(OWNED);
    memset(owner, 1, OWNED);
    view = owner + OWNED / 2;
}

int read_view_after_growth(void)
{
    char *other = malloc(2 * (size_t)OWNED); /* as a vector grows: elsewhere, and the old place is freed */
    memcpy(other, owner, OWNED);
    free(owner);
    owner = other;
    return *view;
}

/* Two owners of one block, and each gives it back. */
void double_free(void)
{
    char *shared = malloc(64), *other_owner = shared;
    free(shared);
    free(other_owner);
}

/* ------------------------------------------------------------------ arguments */
/* A row of a table, without a look at how many there are. */
float gather(long long row)
{
    static float table[1000];
    return table[row];
}

/* ------------------------------------------------------------------ the stack */
#define FRAME 16384

/* A tree without balance, walked by recursion with a local buffer in every call. */
int walk_deeper(long frames)
{
    volatile char buffer[FRAME];
    memset((char *)buffer, 1, sizeof buffer);
    if (frames <= 1)
        return buffer[0];
    return buffer[FRAME - 1] + walk_deeper(frames - 1);
}

void deep_recursion(long mib)
{
    walk_deeper(mib * ((1 << 20) / FRAME));
}

/* ------------------------------------------------------------------ instructions */
/* A rotation as compilers emit it for AMD's XOP set, which no other processors have. */
void rotate_with_xop(void)
{
#if defined(__x86_64__)
    __asm__ volatile(".byte 0x8f, 0xe8, 0x78, 0xc2, 0xc1, 0x07"); /* vprotd $7, %xmm1, %xmm0 */
#endif
}

/* ------------------------------------------------------------------ locks and threads */
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER, index_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t each_has_one;

static void *refresh_index(void *unused)
{
    pthread_mutex_lock(&index_lock);
    pthread_barrier_wait(&each_has_one);
    pthread_mutex_lock(&cache_lock);
    return unused;
}

/* Cache, then index; its other thread takes the index first. */
void lock_in_opposite_order(void)
{
    pthread_t other;
    pthread_barrier_init(&each_has_one, NULL, 2);
    pthread_create(&other, NULL, refresh_index, NULL);
    pthread_mutex_lock(&cache_lock);
    pthread_barrier_wait(&each_has_one);
    pthread_mutex_lock(&index_lock);
}

static volatile int converged;

void iterate_until_converged(void)
{
    while (!converged) {
    }
}

/* A pool of one thread.  It holds the pool's lock while it works on the job. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int working, finish;

static void *work(void *unused)
{
    pthread_mutex_lock(&pool_lock);
    working = 1;
    while (!finish)
        usleep(1000);
    pthread_mutex_unlock(&pool_lock);
    working = 0;
    return unused;
}

void pool_submit(void)
{
    pthread_t worker;
    finish = 0;
    pthread_create(&worker, NULL, work, NULL);
    while (!working)
        usleep(1000);
}

void pool_finish(void)
{
    finish = 1;
}

int pool_ask(void)
{
    pthread_mutex_lock(&pool_lock);
    pthread_mutex_unlock(&pool_lock);
    return 42;
}

/* ------------------------------------------------------------------ the loader */
/* Functions of that library are looked up at their first call.  Returns only when there is no such library. */
void call_lazily_bound(const char *path)
{
    void *extension = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    void (*call)(void) = extension ? (void (*)(void))dlsym(extension, "call_extension") : NULL;
    if (call)
        call();
}

/* ------------------------------------------------------------------ the allocator */
#define PIECE 65536

static sem_t freed;

/* Uses much for a moment, keeps the last piece, and stays alive, as threads of a pool do. */
static void *use_and_free(void *mib)
{
    long count = (long)mib * ((1 << 20) / PIECE);
    char **pieces = malloc(count * sizeof *pieces);
    for (long i = 0; i < count; i++)
        memset(pieces[i] = malloc(PIECE), 1, PIECE);
    volatile char *result = malloc(PIECE / 2); /* the last: what lies below it cannot go back to the system */
    for (long i = 0; i < count; i++)
        free(pieces[i]);
    free(pieces);
    sem_post(&freed);
    for (;;)
        pause();
    return (void *)result;
}

/* Returns when it has freed what it used: two at a time would need more, whatever the allocator keeps. */
void another_thread_uses_memory(long mib)
{
    pthread_t thread;
    sem_init(&freed, 0, 0);
    if (pthread_create(&thread, NULL, use_and_free, (void *)mib) == 0) {
        pthread_detach(thread);
        while (sem_wait(&freed) != 0)
            ;
    }
}
