#include "launcher/cluster/remote_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "launcher/cluster/agent_lines.h"
#include "launcher/run/output.h"

namespace zeroth::launcher {
namespace {

constexpr std::chrono::milliseconds kFinishLimit{10'000};  // for orphans and last lines
// A batch system that ends a job signals all of its hosts within it.
constexpr std::chrono::milliseconds kMoment{2'000};
constexpr int64_t kMaxOomKills = 1'000'000;

bool can_be(Ending ending) {
  return ending.number >= 0 && ending.number < (ending.by_signal ? 128 : 256);
}

}  // namespace

bool RemoteRanks::Host::end(int rank) {
  const auto index = static_cast<size_t>(rank - at.first_rank);
  const bool had = ended[index];
  ended[index] = true;
  return !had;
}

RemoteRanks::RemoteRanks(boost::asio::io_context& io, std::vector<RemoteHost> hosts,
                         bool keep_agents, OnLeaving on_leaving)
    : finish_timer_(io),
      moment_timer_(io),
      keep_agents_(keep_agents),
      on_leaving_(std::move(on_leaving)) {
  for (RemoteHost& host : hosts) {
    std::vector<bool> ended(static_cast<size_t>(host.num_ranks));
    hosts_.push_back(std::make_unique<Host>(Host{std::move(host), std::move(ended)}));
  }
}

void RemoteRanks::start(const std::vector<Start>& starts, RanksListener& listener) {
  listener_ = &listener;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = *hosts_[i];
    host.at.agent->set_handlers(
        {[this, &host](const Message& message) { on_message(host, message); },
         [this, &host](const std::string& why) { on_lost(host, why); }});
    host.at.agent->send(starts.at(i));
  }
}

void RemoteRanks::on_message(Host& host, const Message& message) {
  std::visit([&](const auto& what) { on(host, what); }, message);
}

template <typename Other>
void RemoteRanks::on(Host& /*host*/, const Other& /*message*/) {
  throw Error("its agent said what no agent says now");
}

void RemoteRanks::on(Host& host, const Lines& message) {
  LineTarget* full = nullptr;
  for (const Lines::Line& line : message.lines) {
    if (!host.has(line.rank)) throw Error("lines of rank {}, which is not there", line.rank);
    if (line.text.find('\n') != std::string::npos || line.text.size() > LineSplitter::kMaxLineBytes)
      throw Error("a line of rank {} that is several, or too long", line.rank);
    LineTarget& target = listener_->lines_of(line.rank, line.error);
    target.take(line.text, line.redraws ? LineEnd::kReturn : LineEnd::kNewline);
    if (target.full()) full = &target;
  }
  const auto thank = [agent = host.at.agent, bytes = size_in_window(message)] {
    agent->send(Taken{bytes});
  };
  full == nullptr ? thank() : full->when_empty(thank);
}

void RemoteRanks::on(Host& host, const RanksLookedAt& message) {
  RanksLookedAt seen;
  for (RankEnded ended : message.ended) {
    if (!host.has(ended.rank)) throw Error("an end of rank {}, which is not there", ended.rank);
    if (!can_be(ended.ending)) throw Error("an end of rank {} that cannot be", ended.rank);
    ended.host = host.at.name;
    if (host.end(ended.rank)) seen.ended.push_back(ended);
  }
  host.stopped = message.stopped;
  for (StoppedRank& rank : host.stopped) rank.host = host.at.name;
  seen.stopped = find_stopped();
  listener_->on_look(seen);
}

// A batch system signals all agents, though not at the same moment: that is one signal to the job.
void RemoteRanks::on(Host& host, const Signalled& message) {
  if (message.signal != SIGINT && message.signal != SIGTERM && message.signal != SIGHUP)
    throw Error("its agent was sent signal {}, which it does not wait for", message.signal);
  ++host.signals;
  last_signal_ = message.signal;
  if (host.leaves) return host.at.agent->send(SignalRanks{SIGKILL});  // a second one: at once
  if (!was_signalled(host)) return;
  const bool all = std::all_of(hosts_.begin(), hosts_.end(), [this](const auto& other) {
    return was_signalled(*other) || !other->at.agent->is_open();
  });
  if (!on_leaving_ || all) return end_job(message.signal);
  if (std::exchange(waits_for_others_, true)) return;
  moment_timer_.start(kMoment, [this] { start_leaving(); });
}

void RemoteRanks::note_signal() {
  signals_ = std::max(signals_, 1);
  waits_for_others_ = false;
  moment_timer_.cancel();
}

void RemoteRanks::end_job(int signal) {
  for (const auto& host : hosts_) signals_ = std::max(signals_, host->signals);
  waits_for_others_ = false;
  moment_timer_.cancel();
  listener_->on_signal(signal);
}

// The moment is over, and neither the other hosts nor the launcher were sent the signal: these
// machines are to stop, not the job.
void RemoteRanks::start_leaving() {
  waits_for_others_ = false;
  std::vector<size_t> leaving;
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (was_signalled(*hosts_[i])) leaving.push_back(i);
  if (leaving.empty() || !on_leaving_(leaving, last_signal_)) return end_job(last_signal_);
  for (const size_t i : leaving) hosts_[i]->leaves = true;
}

void RemoteRanks::on(Host& host, const Warning& message) {
  listener_->on_warning(fmt::format("host {}: {}", host.at.name, message.text));
}

void RemoteRanks::on(Host& host, const Finished& message) {
  if (message.oom_kills && (*message.oom_kills < 0 || *message.oom_kills > kMaxOomKills))
    throw Error("a number of processes that cannot be");
  host.finished = true;
  if (message.oom_kills) oom_kills_ = oom_kills_.value_or(0) + *message.oom_kills;
  if (!keep_agents_) host.at.agent->close();
  check_finished();
}

void RemoteRanks::on_lost(Host& host, const std::string& why) {
  if (on_finished_) return give_up(host, why);
  host.stopped.clear();
  RanksLookedAt seen;
  for (int rank = host.at.first_rank; host.has(rank); ++rank) {
    if (!host.end(rank)) continue;
    seen.ended.push_back({.rank = rank, .ending = kLost, .host = host.at.name, .lost = why});
  }
  seen.stopped = find_stopped();
  if (seen.ended.empty())
    listener_->on_warning(
        fmt::format("host {} is lost: {}; its ranks had ended", host.at.name, why));
  listener_->on_look(seen);
}

void RemoteRanks::give_up(Host& host, const std::string& why) {
  if (host.finished) return;
  listener_->on_warning(
      fmt::format("host {} is lost: {}; its last lines may be missing", host.at.name, why));
  host.finished = true;
  host.at.agent->close();
  check_finished();
}

void RemoteRanks::tell_all(const Message& message) {
  for (const auto& host : hosts_) host->at.agent->send(message);
}

std::vector<StoppedRank> RemoteRanks::find_stopped() const {
  std::vector<StoppedRank> all;
  for (const auto& host : hosts_) all.insert(all.end(), host->stopped.begin(), host->stopped.end());
  return all;
}

void RemoteRanks::finish(std::function<void()> done) {
  on_finished_ = std::move(done);
  for (const auto& host : hosts_)
    if (!host->at.agent->is_open()) host->finished = true;  // it was lost
  tell_all(FinishUp{});
  finish_timer_.start(kFinishLimit, [this] {
    for (const auto& host : hosts_) give_up(*host, "it does not come to an end");
  });
  check_finished();
}

void RemoteRanks::check_finished() {
  const auto is_finished = [](const auto& host) { return host->finished; };
  if (!on_finished_ || !std::all_of(hosts_.begin(), hosts_.end(), is_finished)) return;
  finish_timer_.cancel();
  std::exchange(on_finished_, nullptr)();
}

std::optional<int64_t> RemoteRanks::take_new_oom_kills() {
  return std::exchange(oom_kills_, std::nullopt);
}

}  // namespace zeroth::launcher
