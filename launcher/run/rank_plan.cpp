#include "launcher/run/rank_plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/units.h"
#include "launcher/machine/cores.h"

namespace zeroth::launcher {
namespace {

int world_size(const PlanRequest& request) {
  return request.node_ranks.world_size == 0 ? request.choice.num_ranks
                                            : request.node_ranks.world_size;
}

void add_rank_variables(RankSpec& spec, const PlanRequest& request) {
  spec.env = {{"RANK", std::to_string(spec.rank)},
              {"LOCAL_RANK", std::to_string(spec.local_rank)},
              {"WORLD_SIZE", std::to_string(world_size(request))},
              {"LOCAL_SIZE", std::to_string(request.choice.num_ranks)},
              {"CROSS_RANK", std::to_string(request.node_ranks.node_rank)},
              {"CROSS_SIZE", std::to_string(request.node_ranks.num_nodes)},
              {"MASTER_ADDR", request.master_addr},
              {"MASTER_PORT", std::to_string(request.master_port)},
              {"DS_ACCELERATOR", to_string(request.accelerator)},
              {"ZEROTH_LAUNCH_TIME", fmt::format("{:.6f}", request.launch_time)}};
  if (!request.bootstrap_ticket.empty())
    spec.env.emplace_back("ZEROTH_MEETING", request.bootstrap_ticket);
}

void add_device(RankSpec& spec, const PlanRequest& request) {
  if (request.accelerator != Accelerator::kCuda) return;
  spec.env.emplace_back("CUDA_VISIBLE_DEVICES",
                        fmt::format("{}", fmt::join(request.choice.slots, ",")));
  if (!request.user_sets_nccl_socket && request.node_ranks.num_nodes == 1)
    spec.env.emplace_back("NCCL_SOCKET_IFNAME", "lo");
  if (request.choice.shared) spec.env.emplace_back("ZEROTH_SHARE_GPUS", "1");
}

void add_terminal(RankSpec& spec, const PlanRequest& request) {
  if (spec.rank != 0 || !request.terminal_columns) return;
  const int prefix = static_cast<int>(line_prefix(spec.rank, world_size(request)).size());
  spec.env.emplace_back("ZEROTH_TTY", "1");
  spec.env.emplace_back("ZEROTH_COLUMNS",
                        std::to_string(std::max(1, *request.terminal_columns - prefix)));
}

// Returns for each rank the cores local to its GPU. Ranks are assigned to slots round-robin, as
// ranks choose their GPUs.
std::vector<std::vector<int>> numa_cores_by_rank(const PlanRequest& request) {
  std::vector<std::vector<int>> numa_cores(static_cast<size_t>(request.choice.num_ranks));
  if (request.accelerator != Accelerator::kCuda) return numa_cores;
  const std::vector<std::string>& slots = request.choice.slots;
  for (size_t rank = 0; rank < numa_cores.size(); ++rank) {
    const auto found = request.machine.numa_cores.find(slots[rank % slots.size()]);
    if (found != request.machine.numa_cores.end()) numa_cores[rank] = found->second;
  }
  return numa_cores;
}

constexpr size_t kMaxRanksPerCore = 4;  // more are likely a mistake

std::vector<int> bindable_cores(const LaunchOptions& options, const PlanRequest& request) {
  return options.bind_core_list.empty()
             ? request.machine.cores
             : parse_core_list(options.bind_core_list, request.machine.cores);
}

void check_enough_cores(const LaunchOptions& options, const PlanRequest& request) {
  if (request.accelerator != Accelerator::kCpu || options.oversubscribe) return;
  const size_t cores = bindable_cores(options, request).size();
  const auto num_ranks = static_cast<size_t>(request.choice.num_ranks);
  if (cores == 0 || num_ranks <= kMaxRanksPerCore * cores) return;
  throw UsageError(
      "{} CPU ranks on {}: more than {} for each, which would run in turns; --oversubscribe allows "
      "it, --num_gpus sets the number of ranks",
      num_ranks, pluralize(static_cast<int64_t>(cores), "core"), kMaxRanksPerCore);
}

void bind_cores(RankPlan& plan, const LaunchOptions& options, const PlanRequest& request) {
  const std::vector<int> cores = bindable_cores(options, request);
  const int num_ranks = request.choice.num_ranks;
  const bool shared = num_ranks > static_cast<int>(cores.size());
  if (shared)
    plan.notes.push_back(fmt::format("warning: {} ranks share {}, so they run in turns", num_ranks,
                                     pluralize(std::ssize(cores), "core")));
  const std::vector<std::vector<int>> parts = split_cores(cores, numa_cores_by_rank(request));
  for (RankSpec& spec : plan.ranks) {
    spec.cores = parts[static_cast<size_t>(spec.local_rank)];
    if (request.user_sets_threads) continue;
    const size_t threads = shared ? 1 : spec.cores.size();
    spec.env.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
}

}  // namespace

PlanRequest probe_plan_request() {
  const LaunchEnvironment environment = LaunchEnvironment::from_process();
  check_timeout(read_variable("DEEPSPEED_TIMEOUT"));
  PlanRequest request;
  request.machine = probe_machine(environment);
  request.accelerator = resolve_accelerator(environment.ds_accelerator, request.machine);
  request.user_sets_threads = read_variable("OMP_NUM_THREADS").has_value();
  request.user_sets_nccl_socket = read_variable("NCCL_SOCKET_IFNAME").has_value();
  return request;
}

std::string line_prefix(int rank, int num_ranks) {
  return num_ranks == 1 ? "" : fmt::format("[{}] ", rank);
}

RankPlan plan_ranks(const LaunchOptions& options, const PlanRequest& request) {
  check_enough_cores(options, request);
  RankPlan plan;
  for (int local = 0; local < request.choice.num_ranks; ++local) {
    RankSpec spec{request.node_ranks.first_rank + local, local, {}, {}};
    add_rank_variables(spec, request);
    if (options.timeout_seconds)
      spec.env.emplace_back("ZEROTH_TIMEOUT", std::to_string(*options.timeout_seconds));
    add_device(spec, request);
    add_terminal(spec, request);
    plan.ranks.push_back(std::move(spec));
  }
  if (options.bind_cores.value_or(true)) bind_cores(plan, options, request);
  if (request.choice.shared)
    plan.notes.push_back(fmt::format("{} ranks share {}: they exchange data through host memory",
                                     request.choice.num_ranks,
                                     pluralize(std::ssize(request.choice.slots), "GPU")));
  return plan;
}

}  // namespace zeroth::launcher
