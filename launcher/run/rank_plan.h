// Makes one description per rank from the request and the available hardware. Pure except for
// probe_plan_request.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/flags/cli.h"
#include "launcher/machine/machine.h"
#include "launcher/run/slots.h"

namespace zeroth::launcher {

struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::pair<std::string, std::string>> env;  // on top of the launcher's own environment
  std::vector<int> cores;                                // empty: not bound
};

struct RankPlan {
  std::vector<RankSpec> ranks;
  std::vector<std::string> notes;  // to be shown, one line each
};

// NodeRanks are the ranks of this node among those of all nodes.
struct NodeRanks {
  int node_rank = 0;
  int num_nodes = 1;
  int first_rank = 0;
  int world_size = 0;  // 0: all ranks are here
};

struct PlanRequest {
  Accelerator accelerator = Accelerator::kCpu;
  SlotChoice choice;
  Machine machine;
  NodeRanks node_ranks = {};
  std::string master_addr = "127.0.0.1";
  int master_port = 0;                  // the resolved one
  std::string bootstrap_ticket;         // ticket of the ranks' bootstrap memory; empty: not used
  double launch_time = 0;               // start of the launcher in seconds since the epoch
  bool user_sets_threads = false;       // OMP_NUM_THREADS is set: keep it
  bool user_sets_nccl_socket = false;   // NCCL_SOCKET_IFNAME is set: keep it
  std::optional<int> terminal_columns;  // of the launcher's standard output; empty: not a terminal
};

// Returns a request with what the environment and the hardware of this machine say. Throws Error as
// check_timeout and resolve_accelerator.
PlanRequest probe_plan_request();

// Returns "[3] ", the prefix of each line of rank 3; empty if there is a single rank.
std::string line_prefix(int rank, int num_ranks);

// Plans the ranks. Throws UsageError on a bad --bind_core_list. Each rank's variables: RANK,
// LOCAL_RANK, WORLD_SIZE, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE, MASTER_ADDR, MASTER_PORT,
// DS_ACCELERATOR, ZEROTH_LAUNCH_TIME (seconds since the epoch); ZEROTH_MEETING, unless it is empty;
// ZEROTH_TIMEOUT (seconds) with --timeout; on CUDA CUDA_VISIBLE_DEVICES (all chosen GPUs, the same
// for each rank) and NCCL_SOCKET_IFNAME=lo, if all ranks are here; OMP_NUM_THREADS when bound, one
// thread when cores are shared; ZEROTH_SHARE_GPUS=1 when ranks share GPUs; ZEROTH_TTY=1 and
// ZEROTH_COLUMNS for rank 0 on a terminal.
RankPlan plan_ranks(const LaunchOptions& options, const PlanRequest& request);

}  // namespace zeroth::launcher
