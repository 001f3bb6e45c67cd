// The rendezvous of all nodes of a run, each of which must be able to run its ranks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>

#include "base/error.h"
#include "base/machine/slow_wait.h"
#include "launcher/cluster/agent_pool.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {

// RendezvousInterrupted reports that a signal has ended the rendezvous.
class RendezvousInterrupted : public Error {
 public:
  explicit RendezvousInterrupted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

class NodeRendezvous {
 public:
  // `limit` is the time for all nodes to answer.
  NodeRendezvous(boost::asio::io_context& io, const AgentPoolOptions& request,
                 const std::vector<HostSlots>& hosts, std::chrono::milliseconds limit);

  // Runs `io` until all nodes are ready. Throws an Error that names all nodes that are not and why,
  // and RendezvousInterrupted on one of termination_signals(); then no agent is left, nor a secret
  // on a node.
  AgentPool& run();

 private:
  void check();
  void tick();

  boost::asio::io_context& io_;
  boost::asio::signal_set signals_;  // constructed before agents are started
  AgentPool agents_;
  std::chrono::milliseconds limit_;
  SuspendableTimer ticks_;
  std::chrono::milliseconds waited_{0};
  SlowWait slow_;
};

}  // namespace zeroth::launcher
