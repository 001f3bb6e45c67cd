#include "base/machine/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>

namespace zeroth {

void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& work) {
  const int64_t parts = count / std::max<int64_t>(grain, 1);
  const int64_t threads = omp_in_parallel() ? 1 : std::min<int64_t>(parts, omp_get_max_threads());
  if (threads <= 1) {
    if (count > 0) work(0, count);
    return;
  }
  std::exception_ptr first;
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
  for (int64_t i = 0; i < threads; ++i) {
    try {
      work(count * i / threads, count * (i + 1) / threads);
    } catch (...) {
#pragma omp critical
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void set_single_threaded() {
  omp_set_num_threads(1);
}

void reserve_one_thread() {
  omp_set_num_threads(std::max(omp_get_max_threads() - 1, 1));
}

}  // namespace zeroth
