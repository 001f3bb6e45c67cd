#include "launcher/cluster/remote_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "launcher/cluster/line_forwarder.h"
#include "launcher/run/output.h"

namespace zeroth::launcher {
namespace {

constexpr std::chrono::milliseconds kFinishLimit{10'000};  // for orphans and the last lines
// Time within which a batch system that ends a job signals all of its nodes.
constexpr std::chrono::milliseconds kSignalWindow{2'000};
constexpr int64_t kMaxOomKills = 1'000'000;

bool is_valid_exit(ExitStatus exit_status) {
  return exit_status.code >= 0 && exit_status.code < (exit_status.by_signal ? 128 : 256);
}

}  // namespace

bool RemoteRanks::NodeStatus::mark_ended(int rank) {
  const auto index = static_cast<size_t>(rank - node.first_rank);
  const bool had = ended[index];
  ended[index] = true;
  return !had;
}

RemoteRanks::RemoteRanks(boost::asio::io_context& io, std::vector<RemoteNode> hosts,
                         bool keep_agents, OnLeaving on_leaving)
    : finish_timer_(io),
      signal_window_timer_(io),
      keep_agents_(keep_agents),
      on_leaving_(std::move(on_leaving)) {
  for (RemoteNode& host : hosts) {
    std::vector<bool> ended(static_cast<size_t>(host.num_ranks));
    hosts_.push_back(std::make_unique<NodeStatus>(NodeStatus{std::move(host), std::move(ended)}));
  }
}

void RemoteRanks::start(StartRanks start, RanksListener& listener) {
  listener_ = &listener;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    NodeStatus& host = *hosts_[i];
    host.node.agent->set_handlers(
        {[this, &host](const Message& message) {
           std::visit([&](const auto& what) { on(host, what); }, message);
         },
         [this, &host](const std::string& why) { on_node_lost(host, why); }});
    start.node_rank = static_cast<int>(i);
    start.first_rank = host.node.first_rank;
    start.num_ranks = host.node.num_ranks;
    if (start.first_rank > 0) start.terminal_columns.reset();
    host.node.agent->send(start);
  }
}

template <typename Other>
void RemoteRanks::on(NodeStatus& /*host*/, const Other& /*message*/) {
  throw Error("its agent sent an unexpected message");
}

void RemoteRanks::on(NodeStatus& host, const OutputLines& message) {
  LineSink* full = nullptr;
  for (const OutputLines::OutputLine& line : message.lines) {
    if (!host.has(line.rank)) throw Error("output of rank {}, which does not run there", line.rank);
    if (line.text.find('\n') != std::string::npos || line.text.size() > LineSplitter::kMaxLineBytes)
      throw Error("invalid output line of rank {}: several lines in one, or too long", line.rank);
    LineSink& target = listener_->line_sink(line.rank, line.error);
    target.write(line.text, line.redraws ? LineEnd::kReturn : LineEnd::kNewline);
    if (target.is_full()) full = &target;
  }
  const auto send_update = [agent = host.node.agent, bytes = window_bytes(message)] {
    agent->send(WindowUpdate{bytes});
  };
  full == nullptr ? send_update() : full->when_empty(send_update);
}

void RemoteRanks::on(NodeStatus& host, const RanksPolled& message) {
  RanksPolled seen;
  for (RankExit ended : message.ended) {
    if (!host.has(ended.rank)) throw Error("exit of rank {}, which does not run there", ended.rank);
    if (!is_valid_exit(ended.exit_status))
      throw Error("invalid exit status of rank {}", ended.rank);
    ended.host = host.node.name;
    if (host.mark_ended(ended.rank)) seen.ended.push_back(ended);
  }
  host.stopped = message.stopped;
  for (SuspendedRank& rank : host.stopped) rank.host = host.node.name;
  seen.stopped = find_suspended();
  listener_->on_ranks_polled(seen);
}

// Counts the signals of all agents as one signal to the job: a batch system signals them at
// different times.
void RemoteRanks::on(NodeStatus& host, const SignalReceived& message) {
  if (message.signal != SIGINT && message.signal != SIGTERM && message.signal != SIGHUP)
    throw Error("its agent reported unexpected signal {}", message.signal);
  ++host.signals;
  last_signal_ = message.signal;
  if (host.is_leaving) return host.node.agent->send(SignalRanks{SIGKILL});  // the second: kill
  if (!was_signalled(host)) return;
  const bool all = std::all_of(hosts_.begin(), hosts_.end(), [this](const auto& other) {
    return was_signalled(*other) || !other->node.agent->is_open();
  });
  if (!on_leaving_ || all) return end_job(message.signal);
  if (std::exchange(awaiting_signals_, true)) return;
  signal_window_timer_.start(kSignalWindow, [this] { start_leaving(); });
}

void RemoteRanks::record_signal() {
  signals_ = std::max(signals_, 1);
  awaiting_signals_ = false;
  signal_window_timer_.cancel();
}

void RemoteRanks::end_job(int signal) {
  for (const auto& host : hosts_) signals_ = std::max(signals_, host->signals);
  awaiting_signals_ = false;
  signal_window_timer_.cancel();
  listener_->on_signal(signal);
}

// Handles the end of the signal window: neither the other nodes nor the launcher received the
// signal, so these nodes are to stop, not the job.
void RemoteRanks::start_leaving() {
  awaiting_signals_ = false;
  std::vector<int> leaving;
  for (const auto& host : hosts_)
    if (was_signalled(*host)) leaving.push_back(host->node.node);
  if (leaving.empty() || !on_leaving_(leaving, last_signal_)) return end_job(last_signal_);
  for (const auto& host : hosts_)
    if (was_signalled(*host)) host->is_leaving = true;
}

void RemoteRanks::on(NodeStatus& host, const Warning& message) {
  listener_->on_warning(fmt::format("host {}: {}", host.node.name, message.text));
}

void RemoteRanks::on(NodeStatus& host, const Drained& message) {
  if (message.oom_kills && (*message.oom_kills < 0 || *message.oom_kills > kMaxOomKills))
    throw Error("invalid number of killed processes");
  host.finished = true;
  if (message.oom_kills) oom_kills_ = oom_kills_.value_or(0) + *message.oom_kills;
  if (!keep_agents_) host.node.agent->close();
  check_finished();
}

void RemoteRanks::on_node_lost(NodeStatus& host, const std::string& why) {
  if (on_finished_) return give_up(host, why);
  host.stopped.clear();
  RanksPolled seen;
  for (int rank = host.node.first_rank; host.has(rank); ++rank) {
    if (!host.mark_ended(rank)) continue;
    seen.ended.push_back(
        {.rank = rank, .exit_status = kLostNodeExit, .host = host.node.name, .lost_reason = why});
  }
  seen.stopped = find_suspended();
  if (seen.ended.empty())
    listener_->on_warning(
        fmt::format("host {} is lost: {}; its ranks had ended", host.node.name, why));
  listener_->on_ranks_polled(seen);
}

void RemoteRanks::give_up(NodeStatus& host, const std::string& why) {
  if (host.finished) return;
  listener_->on_warning(
      fmt::format("host {} is lost: {}; its last lines may be missing", host.node.name, why));
  host.finished = true;
  host.node.agent->close();
  check_finished();
}

void RemoteRanks::send_to_all(const Message& message) {
  for (const auto& host : hosts_) host->node.agent->send(message);
}

std::vector<SuspendedRank> RemoteRanks::find_suspended() const {
  std::vector<SuspendedRank> all;
  for (const auto& host : hosts_) all.insert(all.end(), host->stopped.begin(), host->stopped.end());
  return all;
}

void RemoteRanks::finish(std::function<void()> done) {
  on_finished_ = std::move(done);
  for (const auto& host : hosts_)
    if (!host->node.agent->is_open()) host->finished = true;  // it was lost
  send_to_all(Drain{});
  finish_timer_.start(kFinishLimit, [this] {
    for (const auto& host : hosts_) give_up(*host, "it did not finish in time");
  });
  check_finished();
}

void RemoteRanks::check_finished() {
  const auto is_finished = [](const auto& host) { return host->finished; };
  if (!on_finished_ || !std::all_of(hosts_.begin(), hosts_.end(), is_finished)) return;
  finish_timer_.cancel();
  std::exchange(on_finished_, nullptr)();
}

std::optional<int64_t> RemoteRanks::read_new_oom_kills() {
  return std::exchange(oom_kills_, std::nullopt);
}

}  // namespace zeroth::launcher
