// One restart attempt of a run on nodes whose agents are connected.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
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
  // `nodes` are ready, in the order of their ranks, and have ranks for one copy of the model.
  // `on_leaving` may be empty: then a signal to one node applies to the whole job.
  MultiNodeAttempt(boost::asio::io_context& io, const MultiNodeConfig& config, AgentPool& agents,
                   std::vector<int> nodes, const RestartAttempt& attempt,
                   RemoteRanks::OnLeaving on_leaving = {});
  ~MultiNodeAttempt();
  MultiNodeAttempt(const MultiNodeAttempt&) = delete;
  MultiNodeAttempt& operator=(const MultiNodeAttempt&) = delete;

  // Starts the ranks and runs `io` until none is left on any node that is not lost.
  JobOutcome run();
  // Asks the ranks, during run(), to save and exit as on SIGTERM, in order to be restarted.
  void request_restart(const std::string& why) { runner_->request_restart(why); }

  // Handles a signal that another object in this process has received during run().
  void on_signal(int signal) { runner_->on_signal(signal); }

  const std::vector<int>& nodes() const { return nodes_; }  // those that have ranks
  bool has(int node) const { return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end(); }
  int num_ranks() const;

 private:
  void log_notes() const;  // logs the nodes' notes
  // Returns the nodes with their ranks, and removes those without from `nodes_`.
  std::vector<RemoteNode> assign_hosts();
  StartRanks make_start() const;  // see RemoteRanks::start
  std::string find_master_addr() const;

  const MultiNodeConfig& config_;
  AgentPool& agents_;
  std::vector<int> nodes_;
  RestartAttempt attempt_;
  int num_slots_ = 0;  // of all nodes, spares included
  std::vector<RemoteNode> hosts_;
  RemoteRanks ranks_;
  std::unique_ptr<JobRunner> runner_;
};

}  // namespace zeroth::launcher
