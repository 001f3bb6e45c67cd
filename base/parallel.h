// Loops over all threads of this process that LibTorch may use too.
#pragma once

#include <cstdint>
#include <functional>

namespace zeroth {

// Calls work(begin, end) on ranges that cover [0, count) once, each of at least `grain` elements
// but the last, at the same time on the threads of OpenMP's pool, which is LibTorch's: at most
// at::get_num_threads(). Within another such loop, or below two grains, the caller does all of it.
// Rethrows the first exception. at::parallel_for does the same only in sources compiled for OpenMP;
// in others it is a plain loop.
void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& work);

// Such loops of the calling thread, and LibTorch's, are plain ones from now on.
// at::get_num_threads() comes before: its first call in a thread sets the number.
void set_single_threaded();
// They have one thread less from now on, if that leaves one: another thread works beside them.
void reserve_one_thread();

}  // namespace zeroth
