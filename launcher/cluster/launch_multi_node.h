// Runs a job on hosts from its start to its end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/agent_pool.h"
#include "launcher/flags/elastic_flags.h"
#include "launcher/run/job_runner.h"

namespace zeroth::launcher {

// Of a run that may have several rounds (restart_policy.h).
struct ElasticConfig {
  NodeRange hosts = {};
  int expected_joiners = 0;  // hosts that are on their way by themselves when the run begins
  int max_restarts = 0;
  std::chrono::milliseconds join_timeout{600'000};  // for as many hosts as there must be
  int requeue_code = 75;                            // where they do not come
  // The hosts as they stand in the hostfile now; empty: they stay those of the start. Throws Error.
  std::function<std::vector<HostSlots>()> poll_hosts = {};
  std::chrono::milliseconds poll_interval{2'000};  // for other hosts
  std::chrono::milliseconds retry_interval{
      15'000};                                  // one that was lost, or could not run its ranks
  std::chrono::milliseconds last_call{30'000};  // for the others, once enough hosts are there
  std::chrono::milliseconds restart_last_call{2'000};  // the same in later rounds
  std::chrono::milliseconds stable_time{3'000};  // a host that has come, before a round ends for it
  // Returns another text as soon as the ranks have committed another checkpoint; "" where there is
  // none, or this machine cannot read it.
  std::function<std::string()> newest_checkpoint = [] { return std::string(); };
};

struct MultiNodeConfig {
  AgentPoolOptions agents;       // `log` gets lines for the user while no ranks run
  std::vector<HostSlots> hosts;  // their ranks are numbered in this order
  std::chrono::milliseconds answer_timeout{60'000};  // for all hosts to answer
  std::string master_addr = {};  // empty: what reaches rank 0's host; the port: see RemoteJob
  double launch_time = 0;        // seconds since the epoch when the launcher began
  std::optional<int> terminal_columns = {};  // of standard output; empty: not a terminal
  JobRunnerOptions runner = {};              // ranks and their logs are counted here
  // An open file per rank, not owned; empty: none.
  std::function<std::vector<int>(int num_ranks)> rank_logs = {};
  std::optional<ElasticConfig> elastic = {};
  // Takes the outcome's message of a round that another one follows; it has several lines.
  std::function<void(const std::string&)> log_outcome = {};
};

// Starts the agents, and through them the ranks, as job_runner.h and job_state_machine.h have it on
// one machine; ranks have no input. A lost host ends the job like a rank that fails, with status 1.
// Returns when no rank is left on any host that is not lost, and no process that started an agent.
// Throws an Error that names all hosts that cannot run their ranks; then none has started.
JobOutcome launch_multi_node(const MultiNodeConfig& config);

}  // namespace zeroth::launcher
