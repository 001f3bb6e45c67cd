#include "launcher/run/local_ranks.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace zeroth::launcher {

LocalRanks::LocalRanks(boost::asio::io_context& io, const LocalRanksOptions& options)
    : io_(io),
      options_(options),
      guard_(std::in_place),
      oom_(options.system_root),
      children_(io, SIGCHLD),
      output_timer_(io) {
  ::signal(SIGPIPE, SIG_IGN);
  adopt_orphans();
}

void LocalRanks::start(const Program& program, const std::vector<RankSpec>& specs,
                       RanksListener& listener) {
  listener_ = &listener;
  for (const RankSpec& spec : specs) start_rank(program, spec);
  wait_for_children();
  poll_children();
}

void LocalRanks::start_rank(const Program& program, const RankSpec& spec) {
  RankSpec marked = spec;
  marked.env.emplace_back(Guard::kVariable, guard_->mark());
  ranks_.push_back(std::make_unique<Rank>(Rank{spec.rank, RankProcess::start(program, marked)}));
  Rank& rank = *ranks_.back();
  for (const bool error : {false, true}) {
    FileDescriptor& source = error ? rank.process.err : rank.process.out;
    rank.streams.push_back(std::make_unique<RankStream>(io_, std::move(source),
                                                        listener_->line_sink(spec.rank, error)));
    rank.streams.back()->start([this] { finish_output(); });
  }
}

void LocalRanks::wait_for_children() {
  children_.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    poll_children();
    wait_for_children();
  });
}

void LocalRanks::poll_children() {
  if (std::none_of(ranks_.begin(), ranks_.end(),
                   [](const auto& rank) { return rank->is_running(); }))
    return;
  const std::string warning = guard_->restart_if_exited();
  if (!warning.empty()) listener_->on_warning(warning);
  RanksPolled seen;
  std::vector<pid_t> known = {guard_->pid()};
  for (const auto& rank : ranks_) {
    if (!rank->is_running()) continue;
    if (const auto exit_status = rank->process.poll_exit()) {
      seen.ended.push_back(collect_exit(*rank, *exit_status));
    } else {
      known.push_back(rank->process.pid());
    }
  }
  reap_orphans(known);
  seen.stopped = find_suspended();
  listener_->on_ranks_polled(seen);
}

RankExit LocalRanks::collect_exit(Rank& rank, ExitStatus exit_status) {
  rank.process.kill_and_reap();
  for (const auto& stream : rank.streams) stream->drain();
  RankExit ended{.rank = rank.index, .exit_status = exit_status};
  if (exit_status.failed() && !killed_) ended.reason = oom_.explain(exit_status);
  return ended;
}

std::vector<SuspendedRank> LocalRanks::find_suspended() const {
  std::vector<SuspendedRank> stopped;
  for (const auto& rank : ranks_)
    if (rank->is_running() && rank->process.is_stopped())
      stopped.push_back({rank->index, rank->process.pid()});
  return stopped;
}

void LocalRanks::signal(int signum) {
  if (signum == SIGKILL) killed_ = true;
  for (const auto& rank : ranks_) {
    if (!rank->is_running()) continue;
    const bool handled = signum != SIGHUP || rank->process.handles(SIGHUP);
    rank->process.signal_group(handled ? signum : SIGTERM);
  }
}

void LocalRanks::suspend() {
  for (const auto& rank : ranks_)
    if (rank->is_running() && !rank->process.is_stopped()) suspended_.push_back(&rank->process);
  for (const RankProcess* process : suspended_) process->signal_group(SIGSTOP);
}

void LocalRanks::resume() {
  for (const RankProcess* process : std::exchange(suspended_, {})) process->signal_group(SIGCONT);
}

void LocalRanks::finish(std::function<void()> done) {
  on_finished_ = std::move(done);
  end_processes();
  output_timer_.start(options_.output_grace, [this] { close_output(); });
  finish_output();
}

void LocalRanks::end_processes() {
  for (const auto& rank : ranks_) rank->process.kill_and_reap();
  guard_.reset();
  kill_orphans(std::chrono::seconds(1));  // only a process stuck in the kernel takes so long
}

void LocalRanks::close_output() {
  for (const auto& rank : ranks_) {
    for (const auto& stream : rank->streams) {
      stream->drain();
      stream->close();
    }
  }
}

// Calls back once all output is read.
void LocalRanks::finish_output() {
  if (!on_finished_) return;
  for (const auto& rank : ranks_)
    for (const auto& stream : rank->streams)
      if (stream->is_open()) return;
  output_timer_.cancel();
  std::exchange(on_finished_, nullptr)();
}

JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     JobRunnerOptions options, const LocalRanksOptions& local_options) {
  options.first_rank = ranks.front().rank;
  options.num_ranks = static_cast<int>(ranks.size());
  if (options.world_size == 0) options.world_size = options.num_ranks;
  boost::asio::io_context io;
  LocalRanks local(io, local_options);
  JobRunner runner(io, local, options);
  local.start(program, ranks, runner);
  return runner.run();
}

}  // namespace zeroth::launcher
