#include "comm/rank_threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "base/machine/cpu.h"
#include "base/machine/machine_id.h"

namespace zeroth::comm {
namespace {

// Returns an id that is the same for all processes of this node that may run on the same cores.
int64_t core_set_id(const std::vector<int>& cores) {
  const auto name = fmt::format("{} {}", boot_id(), fmt::join(cores, ","));
  return static_cast<int64_t>(std::hash<std::string>()(name));
}

}  // namespace

int fair_threads(std::span<const int64_t> core_sets, int rank, int cores, int max_threads) {
  const auto sharing =
      std::count(core_sets.begin(), core_sets.end(), core_sets[static_cast<size_t>(rank)]);
  return std::max(1, std::min(max_threads, cores / static_cast<int>(sharing)));
}

void set_num_threads(const RankEnv& env, const DeviceMesh& mesh) {
  if (mesh.world_size() > 1) {
    const std::vector<int> cores = allowed_cores();
    const torch::Tensor all = torch::empty({mesh.world_size()}, torch::kLong);
    mesh.cpu_group()
        .all_gather(all, torch::full({1}, core_set_id(cores), torch::kLong),
                    "the cores of the ranks")
        .wait();
    at::set_num_threads(fair_threads({all.data_ptr<int64_t>(), static_cast<size_t>(all.numel())},
                                     mesh.rank(), static_cast<int>(cores.size()),
                                     at::get_num_threads()));
  }
  if (env.num_threads) at::set_num_threads(*env.num_threads);
}

}  // namespace zeroth::comm
