// One round of a run on hosts whose agents are there.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cluster/agent_pool.h"
#include "launcher/cluster/launch_multi_node.h"
#include "launcher/cluster/remote_ranks.h"
#include "launcher/run/job_runner.h"

namespace zeroth::launcher {

class MultiNodeAttempt {
 public:
  // These nodes alone were sent a signal; returns whether the run can go on without them.
  using OnLeaving = std::function<bool(const std::vector<int>& nodes, int signal)>;

  // `nodes`: hosts that are ready, in the order of their ranks. `on_leaving` may be empty: then a
  // signal to one of them means the job.
  MultiNodeAttempt(boost::asio::io_context& io, const MultiNodeConfig& config, AgentPool& agents,
                   std::vector<int> nodes, const RestartAttempt& attempt,
                   const OnLeaving& on_leaving = {});
  ~MultiNodeAttempt();
  MultiNodeAttempt(const MultiNodeAttempt&) = delete;
  MultiNodeAttempt& operator=(const MultiNodeAttempt&) = delete;

  // Starts the ranks and runs `io` until none is left on any host that is not lost.
  JobOutcome run();
  // Within run(): the ranks save and end, as on SIGTERM, to be started again.
  void request_restart(const std::string& why) { runner_->request_restart(why); }

  // The same, where a signal has come to somebody else in this process.
  void on_signal(int signal) { runner_->on_signal(signal); }

  const std::vector<int>& nodes() const { return nodes_; }
  bool has(int node) const { return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end(); }
  int num_ranks() const;

 private:
  void log_notes() const;  // of the hosts
  std::vector<RemoteNode> assign_ranks() const;
  RemoteRanks::OnLeaving by_node(const OnLeaving& on_leaving) const;
  std::vector<StartRanks> make_starts() const;
  std::string find_master_addr() const;

  const MultiNodeConfig& config_;
  AgentPool& agents_;
  std::vector<int> nodes_;
  RestartAttempt attempt_;
  std::vector<RemoteNode> hosts_;
  RemoteRanks ranks_;
  std::unique_ptr<JobRunner> runner_;
};

}  // namespace zeroth::launcher
