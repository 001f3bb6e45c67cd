#include "launcher/run/job_state_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth::launcher {

using std::chrono::milliseconds;

namespace {

// timeout(1) and other tools send a signal to the process and to its group: the second one is a
// duplicate.
constexpr milliseconds kSameSignal{250};
// A tool that suspends a whole job stops its processes one by one, including the launcher.
constexpr milliseconds kSuspendedLimit{1000};

std::string describe_suspended(const std::vector<SuspendedRank>& stopped) {
  std::string text;
  for (const SuspendedRank& rank : stopped) {
    text += fmt::format(
        "\nzeroth: rank {} was suspended (SIGSTOP or a debugger) when that happened: others may "
        "have waited for it",
        rank.rank);
  }
  return text;
}

}  // namespace

JobOutcome stopped_by(int signal) {
  return {.status = 128 + signal,
          .message = "stopped by " + signal_name(signal),
          .end = JobEnd::kStopped,
          .signal = signal};
}

JobStateMachine::JobStateMachine(size_t num_ranks, const JobOptions& options)
    : options_(options), num_running_(num_ranks) {}

std::vector<JobAction> JobStateMachine::on(const JobEvent& event, milliseconds now) {
  now_ = now;
  return std::visit([this](const auto& happened) { return handle(happened); }, event);
}

JobStateMachine::JobActions JobStateMachine::handle(const RanksPolled& event) {
  if (finishing_) return {};
  const size_t known = failures_.size();
  for (const RankExit& ended : event.ended) record_exit(ended);
  if (num_running_ == 0) {
    finishing_ = true;
    return {DrainOutput{}};
  }
  JobActions actions;
  if (failures_.size() > known)
    actions = on_failures(std::span(failures_).subspan(known), event.stopped);
  if (suspended_reporter_.any() || !event.stopped.empty()) {
    actions.emplace_back(PollSuspendedRanks{kSuspendedLimit});
  }
  return actions;
}

void JobStateMachine::record_exit(const RankExit& ended) {
  --num_running_;
  if (!ended.exit_status.failed()) return;
  if (failures_.empty()) first_failure_ = now_;
  failures_.push_back({ended, now_ - first_failure_, is_from_launcher(ended.exit_status)});
}

// Shortens the grace period: a rank that fails while ranks stop leaves its peers waiting for it.
JobStateMachine::JobActions JobStateMachine::on_failures(
    std::span<const RankFailure> fresh, const std::vector<SuspendedRank>& stopped) {
  if (phase_ == JobPhase::kRunning) {
    suspended_note_ = describe_suspended(stopped);
    phase_ = JobPhase::kHurried;
    sent_signal_ = SIGTERM;
    return {SignalRanks{SIGTERM}, StartGracePeriod{options_.failure_grace}};
  }
  const auto is_bad = [this](const RankFailure& failure) { return is_unexpected(failure); };
  if (phase_ != JobPhase::kStopping || std::none_of(fresh.begin(), fresh.end(), is_bad)) return {};
  phase_ = JobPhase::kHurried;
  return {StartGracePeriod{options_.failure_grace}};
}

JobStateMachine::JobActions JobStateMachine::handle(const SuspendedRanksPolled& event) {
  if (finishing_ || phase_ != JobPhase::kRunning) return {};
  const std::string text = suspended_reporter_.report(event.stopped, num_running_);
  if (text.empty()) return {};
  return {LogLine{text}};
}

JobStateMachine::JobActions JobStateMachine::handle(const SignalReceived& event) {
  if (event.signal == stop_signal_ && now_ < stop_time_ + kSameSignal) return {};
  last_signal_ = event.signal;
  if (finishing_) return {ExitNow{}};
  const bool restarting = restart_requested_ && stop_signal_ == 0 && phase_ == JobPhase::kStopping;
  if (phase_ != JobPhase::kRunning && !restarting) return kill();
  stop_signal_ = event.signal;
  stop_time_ = now_;
  const std::string text =
      fmt::format("{}: ranks have {} s to finish and save; a second signal ends them at once",
                  signal_name(event.signal), options_.signal_grace.count() / 1000);
  if (!restarting) return stop_ranks(event.signal, text);
  JobActions actions;  // they are already saving: another signal would be their second
  if (!options_.quiet) actions.emplace_back(LogLine{text});
  return actions;
}

JobStateMachine::JobActions JobStateMachine::handle(const RestartRequest& event) {
  if (finishing_ || phase_ != JobPhase::kRunning) return {};  // the job ends anyway
  restart_requested_ = true;
  return stop_ranks(SIGTERM, event.why);
}

JobStateMachine::JobActions JobStateMachine::stop_ranks(int signal, const std::string& text) {
  phase_ = JobPhase::kStopping;
  sent_signal_ = signal;
  JobActions actions;
  if (!options_.quiet) actions.emplace_back(LogLine{text});
  actions.emplace_back(SignalRanks{sent_signal_});
  actions.emplace_back(StartGracePeriod{options_.signal_grace});
  actions.emplace_back(SignalRanks{SIGCONT});  // a suspended rank could not exit
  return actions;
}

JobStateMachine::JobActions JobStateMachine::handle(const GracePeriodOver& /*event*/) {
  if (finishing_) return {};
  return kill();
}

// Continues without output: the outcome of a run does not depend on its reader.
JobStateMachine::JobActions JobStateMachine::handle(const OutputLost& event) {
  output_error_ = event.error;
  if (options_.output_required) return {};
  return {
      LogLine{fmt::format("warning: standard output is lost from here on: {}; the job continues",
                          system_reason(event.error))}};
}

JobStateMachine::JobActions JobStateMachine::kill() {
  phase_ = JobPhase::kKilled;
  return {SignalRanks{SIGKILL}};
}

bool JobStateMachine::is_from_launcher(ExitStatus exit_status) const {
  return (phase_ != JobPhase::kRunning && exit_status == ExitStatus{true, SIGTERM}) ||
         (phase_ == JobPhase::kKilled && exit_status == ExitStatus{true, SIGKILL});
}

// Returns whether the ranks were neither asked to exit this way nor killed by the launcher.
bool JobStateMachine::is_unexpected(const RankFailure& failure) const {
  // A rank that does not handle SIGHUP was sent SIGTERM: JobRanks::signal().
  const bool by_term = sent_signal_ == SIGHUP && is_requested_exit(failure.exit_status, SIGTERM);
  return !(failure.by_launcher && failure.exit_status.code == SIGKILL) &&
         !is_requested_exit(failure.exit_status, sent_signal_) && !by_term;
}

JobOutcome JobStateMachine::outcome(const ToMessage& to_message,
                                    std::optional<int64_t> oom_kills) const {
  if (failures_.empty() && output_error_ != 0 && options_.output_required) return output_lost();
  // A user's program may exit with 0 once it has saved; the next attempt of a finished one detects
  // that.
  if (failures_.empty())
    return {.end = restart_requested_ ? JobEnd::kRestartRequested : JobEnd::kFinished};
  const auto is_bad = [this](const RankFailure& failure) { return is_unexpected(failure); };
  const bool restart_requested =
      restart_requested_ && std::none_of(failures_.begin(), failures_.end(), is_bad);
  if (restart_requested && stop_signal_ == 0)
    return {.end = JobEnd::kRestartRequested, .signal = last_signal_};
  JobOutcome outcome = stop_signal_ != 0 ? stopped(to_message) : failed(to_message, oom_kills);
  if (phase_ == JobPhase::kKilled) {
    outcome.message += "\nzeroth: ranks that did not end by themselves were killed";
  }
  return outcome;
}

const RankFailure* JobStateMachine::cause() const {
  return failures_.empty() ? nullptr : &find_root_cause(failures_, options_.cause_window);
}

// Does not treat a closed reader (EPIPE) as an error: other commands then end by SIGPIPE, silently.
JobOutcome JobStateMachine::output_lost() const {
  if (output_error_ == EPIPE) return {.status = 128 + SIGPIPE, .end = JobEnd::kFailed};
  return {.status = 1,
          .message = fmt::format("error: standard output cannot be written: {}",
                                 system_reason(output_error_)),
          .end = JobEnd::kFailed};
}

JobOutcome JobStateMachine::stopped(const ToMessage& to_message) const {
  JobOutcome outcome = stopped_by(stop_signal_);
  for (const RankFailure& failure : failures_) {
    if (is_unexpected(failure)) outcome.message += "\nzeroth: " + to_message(failure);
  }
  return outcome;
}

JobOutcome JobStateMachine::failed(const ToMessage& to_message,
                                   std::optional<int64_t> oom_kills) const {
  std::string message = to_message(*cause()) + suspended_note_;
  if (oom_kills.value_or(0) > 0) {
    message += fmt::format(
        "\nzeroth: the kernel's out-of-memory killer ended {} process{} meanwhile, perhaps one "
        "that a rank had started",
        *oom_kills, *oom_kills == 1 ? "" : "es");
  }
  return {.status = to_exit_code(cause()->exit_status),
          .message = message,
          .end = JobEnd::kFailed,
          .signal = last_signal_};
}

std::string SuspendedRanksReporter::report(const std::vector<SuspendedRank>& stopped,
                                           size_t running) {
  if (stopped == std::exchange(reported_, stopped)) return "";
  if (stopped.empty()) return "all ranks have resumed";
  std::vector<int> ranks;
  std::vector<std::string> pids;
  for (const SuspendedRank& rank : stopped) {
    ranks.push_back(rank.rank);
    pids.push_back(rank.host.empty() ? std::to_string(rank.pid)
                                     : fmt::format("{} (on host {})", rank.pid, rank.host));
  }
  const bool all = stopped.size() == running;
  const bool one = ranks.size() == 1;
  return fmt::format("{} suspended (SIGSTOP or a debugger): {}; to resume {}: kill -CONT {}",
                     all && !one ? "all ranks are"
                                 : fmt::format("rank{} {} {}", one ? "" : "s",
                                               fmt::join(ranks, ", "), one ? "is" : "are"),
                     all   ? "nothing happens until the job is resumed"
                     : one ? "the others will wait for it"
                           : "the others will wait for them",
                     one ? "it" : "them", fmt::join(pids, " "));
}

}  // namespace zeroth::launcher
