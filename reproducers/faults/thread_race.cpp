/* An index that is no thread-safe object, and threads that add to it at the same time. */

#include <chrono>
#include <string>
#include <thread>
#include <vector>

static std::vector<std::string> rows;

static void add_rows(std::chrono::steady_clock::time_point end)
{
    for (long row = 0; row < 20000 || std::chrono::steady_clock::now() < end; row++) {
        rows.push_back(std::string(100, 'x'));
        if (rows.size() > 1000)
            rows.clear();
    }
}

/* One thread is well; with several, each goes on for that long unless the process dies. */
extern "C" void add_from_threads(int count, double seconds)
{
    auto end = std::chrono::steady_clock::now();
    if (count > 1)
        end += std::chrono::milliseconds(static_cast<long>(seconds * 1000));
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++)
        threads.emplace_back(add_rows, end);
    for (auto &thread : threads)
        thread.join();
}
