#include "launcher/cluster/node_rendezvous.h"

#include <csignal>

#include "base/machine/termination_signals.h"
#include "base/text/units.h"

namespace zeroth::launcher {

namespace {

constexpr std::chrono::milliseconds kTick{200};

}  // namespace

RendezvousInterrupted::RendezvousInterrupted(int signal)
    : Error("stopped by {}", signal_name(signal)), signal_(signal) {}

NodeRendezvous::NodeRendezvous(boost::asio::io_context& io, const AgentPoolOptions& request,
                               const std::vector<HostSlots>& hosts, std::chrono::milliseconds limit)
    : io_(io),
      signals_(io),
      agents_(io, request, hosts, [this] { check(); }),
      limit_(limit),
      ticks_(io) {
  for (const int signal : termination_signals()) signals_.add(signal);
}

AgentPool& NodeRendezvous::run() {
  agents_.start();
  SuspendableTimer timer(io_);
  timer.start(limit_, [this] { agents_.give_up(describe_timeout(limit_)); });
  tick();
  int stopped_by = 0;
  signals_.async_wait([&](boost::system::error_code error, int signal) {
    if (error) return;
    stopped_by = signal;
    io_.stop();
  });
  check();
  io_.run();
  io_.restart();
  timer.cancel();
  ticks_.cancel();
  signals_.cancel();
  signals_.clear();
  agents_.ignore_launch_exits();
  agents_.stop_accepting();
  const std::string refused = agents_.refused();
  if (!refused.empty()) agents_.log("warning: " + refused);
  const std::string error = agents_.readiness().error();
  if (stopped_by != 0 || !error.empty()) {
    agents_.shut_down();
    if (stopped_by != 0) throw RendezvousInterrupted(stopped_by);
    throw Error("{}", error);
  }
  agents_.close_unidentified();
  return agents_;
}

void NodeRendezvous::tick() {
  ticks_.start(kTick, [this] {
    waited_ += kTick;
    if (slow_.due(waited_)) agents_.log_note(agents_.readiness().describe_waiting(waited_, limit_));
    tick();
  });
}

void NodeRendezvous::check() {
  if (agents_.readiness().all_connected()) agents_.stop_accepting();
  if (agents_.readiness().is_complete() || agents_.has_setup_failed()) io_.stop();
}

}  // namespace zeroth::launcher
