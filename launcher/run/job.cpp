#include "launcher/run/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/process_limits.h"
#include "base/units.h"

namespace zeroth::launcher {

using std::chrono::milliseconds;

namespace {

// timeout(1) and others send a signal to the process and to its group: nobody means the second one.
constexpr milliseconds kSameSignal{250};
// Whoever suspends a whole job stops one process after the other, the launcher among them.
constexpr milliseconds kStoppedForLong{1000};

std::string describe_stopped(const std::vector<StoppedRank>& stopped) {
  std::string text;
  for (const StoppedRank& rank : stopped) {
    text += fmt::format(
        "\nzeroth: rank {} was stopped (SIGSTOP or a debugger) when that happened: others may have "
        "waited for it",
        rank.rank);
  }
  return text;
}

}  // namespace

Job::Job(size_t num_ranks, const JobOptions& options) : options_(options), endings_(num_ranks) {}

std::vector<JobAction> Job::on(const JobEvent& event, milliseconds now) {
  return std::visit([&](const auto& happened) { return react(happened, now); }, event);
}

Job::Actions Job::react(const RanksLookedAt& event, milliseconds now) {
  if (finishing_) return {};
  const size_t known = deaths_.size();
  for (const RankEnded& ended : event.ended) note(ended, now);
  if (running() == 0) {
    finishing_ = true;
    return {Finish{}};
  }
  Actions actions;
  if (deaths_.size() > known)
    actions = on_failures(std::span(deaths_).subspan(known), event.stopped);
  if (told_stopped_.any() || !event.stopped.empty()) {
    actions.emplace_back(LookForStopped{kStoppedForLong});
  }
  return actions;
}

void Job::note(const RankEnded& ended, milliseconds now) {
  endings_[static_cast<size_t>(ended.rank)] = ended.ending;
  if (!ended.ending.failed()) return;
  if (deaths_.empty()) first_death_ = now;
  deaths_.push_back({.rank = ended.rank,
                     .ending = ended.ending,
                     .since_first = now - first_death_,
                     .ours = is_ours(ended.ending),
                     .reason = ended.reason,
                     .host = ended.host,
                     .lost = ended.lost});
}

// While ranks finish on a signal, one that fails leaves the others waiting for it.
Job::Actions Job::on_failures(std::span<const Death> fresh,
                              const std::vector<StoppedRank>& stopped) {
  if (phase_ == Phase::kRunning) {
    stopped_meanwhile_ = describe_stopped(stopped);
    phase_ = Phase::kHurried;
    told_signal_ = SIGTERM;
    return {SignalRanks{SIGTERM}, Grant{options_.failure_grace}};
  }
  const auto is_bad = [this](const Death& death) { return is_unforeseen(death); };
  if (phase_ != Phase::kStopping || std::none_of(fresh.begin(), fresh.end(), is_bad)) return {};
  phase_ = Phase::kHurried;
  return {Grant{options_.failure_grace}};
}

Job::Actions Job::react(const StillStopped& event, milliseconds /*now*/) {
  if (finishing_ || phase_ != Phase::kRunning) return {};
  const std::string text = told_stopped_.tell(event.stopped, running());
  if (text.empty()) return {};
  return {Say{text}};
}

Job::Actions Job::react(const Signalled& event, milliseconds now) {
  if (event.signal == stop_signal_ && now < stop_time_ + kSameSignal) return {};
  last_signal_ = event.signal;
  if (finishing_) return {Leave{}};
  const bool told = regroups_ && stop_signal_ == 0 && phase_ == Phase::kStopping;
  if (phase_ != Phase::kRunning && !told) return kill();
  stop_signal_ = event.signal;
  stop_time_ = now;
  const std::string words =
      fmt::format("{}: ranks have {} s to finish and save; a second signal ends them at once",
                  signal_name(event.signal), options_.signal_grace.count() / 1000);
  if (!told) return stop_ranks(event.signal, words);
  Actions actions;  // they save already: one more signal would be their second
  if (!options_.quiet) actions.emplace_back(Say{words});
  return actions;
}

Job::Actions Job::react(const Regroup& event, milliseconds /*now*/) {
  if (finishing_ || phase_ != Phase::kRunning) return {};  // it comes to its end anyway
  regroups_ = true;
  return stop_ranks(SIGTERM, event.why);
}

Job::Actions Job::stop_ranks(int signal, const std::string& words) {
  phase_ = Phase::kStopping;
  told_signal_ = signal;
  Actions actions;
  if (!options_.quiet) actions.emplace_back(Say{words});
  actions.emplace_back(SignalRanks{told_signal_});
  actions.emplace_back(Grant{options_.signal_grace});
  actions.emplace_back(SignalRanks{SIGCONT});  // one that is stopped could not obey
  return actions;
}

Job::Actions Job::react(const GraceOver& /*event*/, milliseconds /*now*/) {
  if (finishing_) return {};
  return kill();
}

// How a run ends does not depend on who watches it.
Job::Actions Job::react(const OutputLost& event, milliseconds /*now*/) {
  output_error_ = event.error;
  if (options_.output_is_all) return {};
  return {Say{fmt::format("warning: standard output is lost from here on: {}; the job goes on",
                          system_reason(event.error))}};
}

Job::Actions Job::kill() {
  phase_ = Phase::kKilled;
  return {SignalRanks{SIGKILL}};
}

bool Job::is_ours(Ending ending) const {
  return (phase_ != Phase::kRunning && ending == Ending{true, SIGTERM}) ||
         (phase_ == Phase::kKilled && ending == Ending{true, SIGKILL});
}

// Neither what the ranks were told to do nor what we did to them.
bool Job::is_unforeseen(const Death& death) const {
  // A rank that does nothing about SIGHUP was sent SIGTERM: Ranks::signal().
  const bool by_term = told_signal_ == SIGHUP && obeyed(death.ending, SIGTERM);
  return !(death.ours && death.ending.number == SIGKILL) && !obeyed(death.ending, told_signal_) &&
         !by_term;
}

size_t Job::running() const {
  return static_cast<size_t>(std::count(endings_.begin(), endings_.end(), std::nullopt));
}

JobOutcome Job::outcome(const std::function<std::string(const Death&)>& tell,
                        std::optional<int64_t> oom_kills) const {
  if (deaths_.empty() && output_error_ != 0 && options_.output_is_all) return output_lost();
  // A program of one's own may end with 0 once it has saved; one that was done finds that out.
  if (deaths_.empty()) return {.end = regroups_ ? JobEnd::kRegrouped : JobEnd::kFinished};
  const auto is_bad = [this](const Death& death) { return is_unforeseen(death); };
  const bool regrouped = regroups_ && std::none_of(deaths_.begin(), deaths_.end(), is_bad);
  if (regrouped && stop_signal_ == 0) return {.end = JobEnd::kRegrouped, .signal = last_signal_};
  JobOutcome outcome = stop_signal_ != 0 ? stopped(tell) : failed(tell, oom_kills);
  if (phase_ == Phase::kKilled) {
    outcome.message += "\nzeroth: ranks that did not end by themselves were killed";
  }
  return outcome;
}

const Death* Job::cause() const {
  return deaths_.empty() ? nullptr : &find_cause(deaths_, options_.same_failure);
}

// A reader that leaves is no error: other commands end by SIGPIPE then, without a word.
JobOutcome Job::output_lost() const {
  if (output_error_ == EPIPE) return {.status = 128 + SIGPIPE, .end = JobEnd::kFailed};
  return {.status = 1,
          .message = fmt::format("error: standard output cannot be written: {}",
                                 system_reason(output_error_)),
          .end = JobEnd::kFailed};
}

JobOutcome Job::stopped(const std::function<std::string(const Death&)>& tell) const {
  std::string message = "stopped by " + signal_name(stop_signal_);
  for (const Death& death : deaths_) {
    if (is_unforeseen(death)) message += "\nzeroth: " + tell(death);
  }
  return {.status = 128 + stop_signal_,
          .message = message,
          .end = JobEnd::kStopped,
          .signal = stop_signal_};
}

JobOutcome Job::failed(const std::function<std::string(const Death&)>& tell,
                       std::optional<int64_t> oom_kills) const {
  std::string message = tell(*cause()) + stopped_meanwhile_;
  if (oom_kills.value_or(0) > 0) {
    message += fmt::format(
        "\nzeroth: the kernel's out-of-memory killer ended {} process{} meanwhile, perhaps one "
        "that a rank had started",
        *oom_kills, *oom_kills == 1 ? "" : "es");
  }
  return {.status = exit_status(cause()->ending),
          .message = message,
          .end = JobEnd::kFailed,
          .signal = last_signal_};
}

std::string StoppedRanks::tell(const std::vector<StoppedRank>& stopped, size_t running) {
  if (stopped == std::exchange(told_, stopped)) return "";
  if (stopped.empty()) return "all ranks go on";
  std::vector<int> ranks;
  std::vector<std::string> pids;
  for (const StoppedRank& rank : stopped) {
    ranks.push_back(rank.rank);
    pids.push_back(rank.host.empty() ? std::to_string(rank.pid)
                                     : fmt::format("{} (on host {})", rank.pid, rank.host));
  }
  const bool all = stopped.size() == running;
  const bool one = ranks.size() == 1;
  return fmt::format("{} stopped (SIGSTOP or a debugger): {}; to let {} go on: kill -CONT {}",
                     all && !one ? "all ranks are"
                                 : fmt::format("rank{} {} {}", one ? "" : "s",
                                               fmt::join(ranks, ", "), one ? "is" : "are"),
                     all   ? "nothing happens until somebody continues the job"
                     : one ? "the others will wait for it"
                           : "the others will wait for them",
                     one ? "it" : "them", fmt::join(pids, " "));
}

}  // namespace zeroth::launcher
