// The placement of ranks: on this machine, on one of several machines that a person starts, or on
// nodes whose agents start them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/backends/forwarded_environment.h"
#include "launcher/backends/hostfile.h"
#include "launcher/backends/node_backend.h"
#include "launcher/flags/cli.h"
#include "launcher/run/rank_plan.h"

namespace zeroth::launcher {

// ClusterPlan describes ranks on nodes, each of which has an agent that starts its ranks.
struct ClusterPlan {
  // The hosts, in whose order ranks are numbered, and how their agents are started; without the
  // launcher's endpoints, the secret and the token.
  AgentLaunchRequest agents;
  const NodeBackend* backend = nullptr;  // a static table entry, not owned
  Variables environment = {};            // for all ranks, on top of each node's own environment
  // The members below are for a run that may have several attempts (launch_multi_node.h).
  std::optional<NodeRange> elastic = {};  // number of nodes of each attempt
  std::optional<int> join_port = {};
  int num_joiners = 0;  // nodes that were started together with this one
  std::optional<std::string> join_address = {};
  bool watches_hostfile = false;  // re-reads the hostfile periodically
};

struct Placement {
  std::optional<ClusterPlan> cluster = {};  // of agents; empty: ranks start here, as follows
  std::string join = {};                    // ADDRESS:PORT of the run that this machine joins
  std::vector<int> slots = {};              // of this machine in the hostfile; empty: no hostfile
  NodeRanks node_ranks = {};                // which ranks these are; with_num_ranks() completes it
  std::optional<int> min_nodes = {};        // of all nodes, if some may be missing
  std::optional<int> num_ranks = {};        // like --num_gpus, set by the scheduler
  std::optional<std::string> master_addr = {};  // the scheduler's value, used without --master_addr
  std::optional<int> master_port = {};
  std::string scheduler = {};  // "Slurm", if it has started zeroth on each of several nodes
  std::vector<std::string> notes = {};  // to be shown, one line each
};

// PlacementInputs are what the placement depends on beside the flags.
struct PlacementInputs {
  std::vector<HostEntry> hostfile = {};  // empty: no hostfile
  std::function<bool(const std::string& host)> is_this_machine;
  bool has_pdsh = false;
  Variables variables = {};  // of this process
};

// Zeroth's default port if no flag or scheduler sets one; the same as DeepSpeed's.
inline constexpr int kDefaultMasterPort = 29500;

// Decides where ranks run. Pure except for `is_this_machine`, which is called for a host that is
// alone. With --no_ssh this machine is the host of --node_rank and starts its own ranks. It also
// does so if the variables say that a zeroth was started on each node (scheduler_node.h): the nodes
// are the hostfile's or, without a hostfile, have equally many ranks. A single host that is this
// machine runs its ranks without an agent, unless --force_multi or --elastic is set; otherwise
// agents run them. Flags that have no effect then are noted. Throws UsageError as choose_hosts,
// find_backend and find_scheduler_node do, if --no_ssh is used without --node_rank or
// --master_addr, and if a flag requires a hostfile. A plan has no environment, executable or
// PDSH_SSH_ARGS_APPEND yet.
//
// In an elastic run the launcher reaches each host of a hostfile by an ssh of its own. If zeroth
// was started on each of several nodes, the one on node 0 becomes the launcher, with an agent of
// its own, and the others join it. Without a hostfile this machine starts alone, and others join. A
// host entry of this machine has no slots yet. Restarts alone keep the hosts as they are; on one
// machine they need nothing here. Throws UsageError on flags that contradict this.
Placement place_ranks(const LaunchOptions& options, const PlacementInputs& inputs);

// Decides where ranks run by the hostfile, this process's environment and the files on this
// machine. A default hostfile may be missing. Throws also Error as read_hostfile and
// forwarded_environment do.
Placement find_placement(const LaunchOptions& options);

// Reads the hosts that the hostfile and the flags select now. Throws as find_placement.
std::vector<HostSlots> read_hosts(const LaunchOptions& options);

// Completes `node_ranks` for nodes that all have as many ranks as this one, unless a hostfile gives
// the number of each.
NodeRanks with_num_ranks(const NodeRanks& node_ranks, int num_ranks);

}  // namespace zeroth::launcher
