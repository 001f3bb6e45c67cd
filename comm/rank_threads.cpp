#include "comm/rank_threads.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>

#include "base/affinity.h"

namespace zeroth::comm {

int fair_threads(int alone, int cores, int local_size) {
  return std::max(1, std::min(alone, cores / local_size));
}

void set_num_threads(const RankEnv& env) {
  if (env.num_threads) {
    at::set_num_threads(*env.num_threads);
  } else if (env.local_size > 1) {
    const auto around = cores_of(::getppid());
    const auto cores = static_cast<int>((around ? *around : allowed_cores()).size());
    at::set_num_threads(fair_threads(at::get_num_threads(), cores, env.local_size));
  }
}

}  // namespace zeroth::comm
