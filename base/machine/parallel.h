// Parallel loops over the threads that this process shares with LibTorch.
#pragma once

#include <cstdint>
#include <functional>

namespace zeroth {

// Calls work(begin, end) for ranges that cover [0, count) once, each of at least `grain` elements
// but the last. They run concurrently on OpenMP's thread pool, which is LibTorch's, on at most
// at::get_num_threads() threads. Runs serially in the caller inside another such loop or below two
// grains. Rethrows the first exception. at::parallel_for does the same only in sources that are
// compiled for OpenMP; in others it is a serial loop.
void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& work);

// Makes these loops of the calling thread, and LibTorch's, serial from this call on. The caller
// must call at::get_num_threads() before: its first call in a thread sets the number.
void set_single_threaded();
// Reduces the threads of these loops by one from this call on, but not below one, to leave a core
// for another thread.
void reserve_one_thread();

}  // namespace zeroth
