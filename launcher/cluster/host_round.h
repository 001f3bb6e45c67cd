// One round of a run on hosts whose agents are there.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cluster/agents.h"
#include "launcher/cluster/launch_on_hosts.h"
#include "launcher/cluster/remote_ranks.h"
#include "launcher/run/job_shell.h"

namespace zeroth::launcher {

class HostRound {
 public:
  // These nodes alone were sent a signal; returns whether the run can go on without them.
  using OnLeaving = std::function<bool(const std::vector<int>& nodes, int signal)>;

  // `nodes`: hosts that are ready, in the order of their ranks. `on_leaving` may be empty: then a
  // signal to one of them means the job.
  HostRound(boost::asio::io_context& io, const HostsLaunch& launch, Agents& agents,
            std::vector<int> nodes, const Round& round, const OnLeaving& on_leaving = {});
  ~HostRound();
  HostRound(const HostRound&) = delete;
  HostRound& operator=(const HostRound&) = delete;

  // Starts the ranks and runs `io` until none is left on any host that is not lost.
  JobOutcome run();
  // Within run(): the ranks save and end, as on SIGTERM, to be started again.
  void regroup(const std::string& why) { shell_->regroup(why); }

  // The same, where a signal has come to somebody else in this process.
  void on_signal(int signal) { shell_->on_signal(signal); }

  const std::vector<int>& nodes() const { return nodes_; }
  bool has(int node) const { return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end(); }
  int num_ranks() const;

 private:
  void tell_notes() const;  // of the hosts
  std::vector<RemoteHost> with_ranks() const;
  RemoteRanks::OnLeaving by_node(const OnLeaving& on_leaving) const;
  std::vector<Start> make_starts() const;
  std::string find_master() const;

  const HostsLaunch& launch_;
  Agents& agents_;
  std::vector<int> nodes_;
  Round round_;
  std::vector<RemoteHost> hosts_;
  RemoteRanks ranks_;
  std::unique_ptr<JobShell> shell_;
};

}  // namespace zeroth::launcher
