/*
threads.h -- how many threads the system gives. OpenMP ends a program that gets fewer than it wants.
*/
#ifndef THREADS_H
#define THREADS_H
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

// Returns how many of n threads the system gives, the caller's among them: starts them all, and
// ends them.
inline int threads_given(int n) {
    std::vector<std::thread> threads;
    std::mutex all_there;
    try {
        std::lock_guard<std::mutex> hold(all_there);     // all threads live until the last starts
        while ((int)threads.size() + 1 < n) {
            threads.emplace_back([&] { std::lock_guard<std::mutex> wait(all_there); });
        }
    } catch (const std::system_error&) { }               // a limit of processes
    for (auto& thread : threads) { thread.join(); }
    return (int)threads.size() + 1;
}
#endif // THREADS_H
