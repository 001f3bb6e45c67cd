// Where ranks run: here, on one of several machines that are started by hand, or on hosts whose
// agents start them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/forwarded_environment.h"
#include "launcher/cluster/host_slots.h"
#include "launcher/cluster/node_backend.h"
#include "launcher/flags/cli.h"
#include "launcher/run/rank_plan.h"

namespace zeroth::launcher {

// Ranks on hosts, of which each has an agent that starts them.
struct ClusterPlan {
  std::vector<HostSlots> hosts;          // their ranks are numbered in this order
  const NodeBackend* backend = nullptr;  // one of the table, which outlives all
  std::vector<std::string> launcher_args = {};
  std::string zeroth = {};         // the launcher's own file, absolute
  Variables environment = {};      // for all ranks, beside what each host's agent has
  std::string pdsh_ssh_args = {};  // PDSH_SSH_ARGS_APPEND
  std::optional<int> gpus_per_node = {};
  // Of a run that may have several rounds (launch_multi_node.h):
  std::optional<NodeRange> elastic = {};  // how many hosts each has
  std::optional<int> join_port = {};
  int num_joiners = 0;  // that were started with this one
  std::optional<std::string> join_address = {};
  bool watches_hostfile = false;  // again and again
};

struct Placement {
  std::optional<ClusterPlan> cluster = {};  // agents start the ranks; else they start here:
  std::string join = {};                    // ADDRESS:PORT of the run to which this machine goes
  std::vector<int> slots = {};              // of this machine by the hostfile; empty: there is none
  NodeRanks node_ranks = {};                // which ranks these are; with_num_ranks() completes it
  std::optional<int> min_nodes = {};        // of all nodes, where some may not be there yet
  std::optional<int> num_ranks = {};        // as --num_gpus, by the word of who started zeroth
  std::optional<std::string> master_addr = {};  // for want of --master_addr, likewise
  std::optional<int> master_port = {};
  std::string scheduler = {};  // "Slurm", where that has started zeroth on each of several nodes
  std::vector<std::string> notes = {};  // to be shown, one line each
};

// What else the placement depends on.
struct PlacementInputs {
  std::vector<HostEntry> hostfile = {};  // empty: there is none
  std::function<bool(const std::string& host)> is_this_machine;
  bool has_pdsh = false;
  Variables variables = {};  // of this process
};

// Zeroth's port where it is agreed on by nobody, as DeepSpeed has it.
inline constexpr int kDefaultMasterPort = 29500;

// Pure but for `is_this_machine`, which is asked about a host that is alone. With --no_ssh this
// machine is the host of --node_rank and starts its own ranks, and so it does where the variables
// say that a zeroth was started on each node (scheduler_node.h): of the hostfile's, or without one
// of nodes that have equally many ranks. A single host that is this machine runs its ranks without
// an agent, unless --force_multi or --elastic; else agents do, and what --elastic makes of it says
// place_elastic.h. Flags that then mean nothing are noted. Throws
// UsageError as choose_hosts, find_backend and find_scheduler_node, where --no_ssh lacks
// --node_rank or
// --master_addr, and where a flag needs a hostfile. A plan has no environment, file and
// PDSH_SSH_ARGS_APPEND yet.
Placement place_ranks(const LaunchOptions& options, const PlacementInputs& inputs);

// The same with the hostfile, this process's environment and the files on this machine. A default
// hostfile that is missing is none. Throws also Error as read_hostfile and forwarded_environment.
Placement find_placement(const LaunchOptions& options);

// The hosts that the hostfile and the flags leave now. Throws as find_placement.
std::vector<HostSlots> read_hosts(const LaunchOptions& options);

// `part` of nodes that all have as many ranks as this one, unless a hostfile has said how many each
// has.
NodeRanks with_num_ranks(const NodeRanks& node_ranks, int num_ranks);

// For make_agent_commands: what is left to add are the launcher's addresses, the secret and the
// token.
AgentLaunchRequest make_agent_request(const LaunchOptions& options, const ClusterPlan& plan);

}  // namespace zeroth::launcher
