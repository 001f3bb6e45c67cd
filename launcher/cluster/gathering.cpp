#include "launcher/cluster/gathering.h"

#include <csignal>

#include "base/end_signals.h"
#include "base/units.h"

namespace zeroth::launcher {

namespace {

constexpr std::chrono::milliseconds kTick{200};

}  // namespace

GatheringStopped::GatheringStopped(int signal)
    : Error("stopped by {}", signal_name(signal)), signal_(signal) {}

Gathering::Gathering(boost::asio::io_context& io, const AgentsRequest& request,
                     const std::vector<HostSlots>& hosts, std::chrono::milliseconds limit)
    : io_(io),
      signals_(io),
      agents_(io, request, hosts, [this] { check(); }),
      limit_(limit),
      ticks_(io) {
  for (const int signal : end_signals()) signals_.add(signal);
}

Agents& Gathering::run() {
  agents_.start();
  RunningTimer timer(io_);
  timer.start(limit_, [this] { agents_.give_up(no_answer_within(limit_)); });
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
  agents_.only_show_lines();
  agents_.close_door();
  const std::string refused = agents_.refused();
  if (!refused.empty()) agents_.say("warning: " + refused);
  const std::string complaint = agents_.roll().complaint();
  if (stopped_by != 0 || !complaint.empty()) {
    agents_.let_go();
    if (stopped_by != 0) throw GatheringStopped(stopped_by);
    throw Error("{}", complaint);
  }
  agents_.close_unknown();
  return agents_;
}

void Gathering::tick() {
  ticks_.start(kTick, [this] {
    waited_ += kTick;
    if (slow_.due(waited_)) agents_.note(agents_.roll().waiting_text(waited_, limit_));
    tick();
  });
}

void Gathering::check() {
  if (agents_.roll().all_have_come()) agents_.close_door();
  if (agents_.roll().is_complete() || agents_.is_hopeless()) io_.stop();
}

}  // namespace zeroth::launcher
