// Runs a job on several nodes from start to end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/agent_pool.h"
#include "launcher/flags/host_flags.h"
#include "launcher/run/job_runner.h"
#include "launcher/run/program_arguments.h"

namespace zeroth::launcher {

struct ClusterPlan;
struct LaunchOptions;

// ElasticConfig configures a run that may have several attempts (restart_policy.h).
struct ElasticConfig {
  NodeRange hosts = {};
  ModelParallelSize model_parallel = {};  // an attempt has a multiple of these ranks
  int expected_joiners = 0;               // nodes that will join by themselves when the run starts
  int max_restarts = 0;
  std::chrono::milliseconds join_timeout{600'000};  // for a quorum of nodes
  int requeue_code = 75;                            // without a quorum
  // Returns the hosts in the hostfile now; an empty function keeps the hosts of the start. Throws
  // Error.
  std::function<std::vector<HostSlots>()> poll_hosts = {};
  std::chrono::milliseconds poll_interval{2'000};      // between calls of `poll_hosts`
  std::chrono::milliseconds retry_interval{15'000};    // of lost or unusable nodes
  std::chrono::milliseconds last_call{30'000};         // for further nodes, once there is a quorum
  std::chrono::milliseconds restart_last_call{2'000};  // `last_call` of later attempts
  std::chrono::milliseconds stable_time{3'000};        // of a new node, before a restart
  // Returns a different text after the ranks commit another checkpoint; "" if there is none or this
  // machine cannot read it.
  std::function<std::string()> newest_checkpoint = [] { return std::string(); };
};

struct MultiNodeConfig {
  AgentPoolOptions agents;       // `log` receives lines for the user while no ranks run
  std::vector<HostSlots> hosts;  // ranks are numbered in this order
  std::chrono::milliseconds answer_timeout{60'000};  // for all nodes to answer
  std::string master_addr = {};  // empty: what reaches rank 0's node; the port: see RemoteJob
  double launch_time = 0;        // start of the launcher in seconds since the epoch
  std::optional<int> terminal_columns = {};  // of standard output; empty: not a terminal
  JobRunnerOptions runner = {};  // without numbers of ranks and logs, which are set here
  // Returns an open file per rank, not owned; empty: none.
  std::function<std::vector<int>(int num_ranks)> rank_logs = {};
  std::optional<ElasticConfig> elastic = {};
  // Receives the outcome's message, which has several lines, if another attempt follows.
  std::function<void(const std::string&)> log_outcome = {};
};

// Starts the agents, and through them the ranks, by the rules of job_runner.h and
// job_state_machine.h on one machine; ranks have no input. A lost node ends the job like a failed
// rank, with status 1. Returns when no rank is left on any node that is not lost, and no process
// that started an agent. Throws an Error that names all nodes that cannot run their ranks; then no
// rank has started.
JobOutcome launch_multi_node(const MultiNodeConfig& config);

// Runs it in restart attempts; `config.elastic` must be set. A rank, agent or node that is lost
// ends the attempt on all nodes. While restarts are left, the next attempt starts with the nodes
// that are present, in the order of the hostfile and then of their arrival. Nodes that arrive
// during an attempt are added after the ranks, at the launcher's request, have saved. Nodes beyond
// the maximum wait as spares. Each attempt's rank 0 is on a node that is present. A silent agent is
// excluded from the run; it ends its ranks when it notices. Throws an Error, as launch_multi_node
// does, if all nodes have answered and too few can run their ranks before the first attempt.
JobOutcome run_elastic(const MultiNodeConfig& config);

// Makes the configuration, which keeps copies of both arguments. The caller sets the time, the
// terminal, rank logs, the log callback, and the secret if nodes join.
MultiNodeConfig make_multi_node_config(const LaunchOptions& options, const ClusterPlan& plan);

}  // namespace zeroth::launcher
