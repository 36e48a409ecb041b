/* A device whose driver keeps a table of the backward passes that no update of the weights has used yet.

   The table has SLOTS places and nobody checks that: what comes after them is written behind the table.  And an update takes back
   SLOTS places at most, so that the writer moves on with each update that came too late.  Memory behind the table is there for a
   while, because the driver keeps some for reuse; when its cache is cleared, it is not. */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { PLACE = 4096, SLOTS = 12, SPARE = 12 };

static unsigned char *table;
static size_t next;

int device_open(void)
{
    /* The page after the last is nobody's: else the fault would damage whatever lies there, in another way on every machine. */
    table = mmap(NULL, (SLOTS + SPARE + 1) * PLACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return -1;
    return mprotect(table + (SLOTS + SPARE) * PLACE, PLACE, PROT_NONE);
}

void device_backward(void)
{
    memset(table + next++ * PLACE, 1, PLACE);
}

void device_update(void)
{
    next = next > SLOTS ? next - SLOTS : 0;
}

int device_clear_cache(void)
{
    size_t used = next > SLOTS ? next : SLOTS;
    return mprotect(table + used * PLACE, (SLOTS + SPARE - used) * PLACE, PROT_NONE);
}
