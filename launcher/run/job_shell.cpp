#include "launcher/run/job_shell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>

#include "base/end_signals.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/process_limits.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/verdict.h"

namespace zeroth::launcher {
namespace {

// As SIGTSTP does by default, not where nobody could continue this process. Returns when somebody
// has.
void stop_here() {
  struct sigaction by_default {
  }, ours{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &by_default, &ours);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &ours, nullptr);
}

}  // namespace

JobShell::JobShell(boost::asio::io_context& io, Ranks& ranks, const JobShellOptions& options)
    : io_(io),
      ranks_(ranks),
      options_(options),
      job_(static_cast<size_t>(options.num_ranks), options.job),
      signals_(io),
      grace_timer_(io),
      stopped_timer_(io),
      console_(io, [this](int fd, int error) {
        if (fd == STDOUT_FILENO) tell_job(OutputLost{error});
      }) {
  for (const int signal : end_signals()) signals_.add(signal);
  if (!is_ignored(SIGTSTP)) signals_.add(SIGTSTP);
  ::signal(SIGPIPE, SIG_IGN);
  for (int i = 0; i < options_.num_ranks; ++i) outputs_.push_back(make_output(i));
}

std::unique_ptr<JobShell::RankOutput> JobShell::make_output(int index) {
  const int number = options_.first_rank + index;
  auto output = std::make_unique<RankOutput>();
  if (!options_.rank_logs.empty()) {
    const int file = options_.rank_logs[static_cast<size_t>(index)];
    output->log = std::make_unique<OutputSink>(io_, file, [this, number](int error) {
      on_warning(fmt::format("the log of rank {} ends here: {}", number, system_reason(error)));
    });
  }
  const std::string prefix = options_.bare_lines ? "" : line_prefix(number, options_.world_size);
  const auto lines = [&](OutputSink& sink, bool progress) {
    return std::make_unique<ConsoleLines>(
        console_, ConsoleLines::Route{sink, output->tail, prefix, progress, output->log.get()});
  };
  output->out = lines(console_.out(), options_.progress_on_terminal && number == 0);
  output->err = lines(console_.err(), false);
  return output;
}

JobOutcome JobShell::run() {
  wait_for_signals();
  io_.run();
  ZEROTH_CHECK(over_, "somebody else has stopped the loop of a job that goes on");
  JobOutcome outcome = job_.outcome([this](const Death& death) { return with_last_words(death); },
                                    ranks_.take_new_oom_kills());
  if (const Death* const cause = job_.cause(); cause != nullptr && outcome.end == JobEnd::kFailed)
    outcome.cause = describe_cause(with_global_rank(*cause), tail_of(*cause).lines());
  return outcome;
}

void JobShell::wait_for_signals() {
  signals_.async_wait(
      [this, alive = std::weak_ptr(alive_)](boost::system::error_code error, int signal) {
        if (error || alive.expired()) return;
        if (signal != SIGTSTP) ranks_.note_signal();
        signal == SIGTSTP ? suspend() : tell_job(Signalled{signal});
        wait_for_signals();
      });
}

// Ranks are in groups of their own, which a terminal does not reach.
void JobShell::suspend() {
  ranks_.suspend();
  stop_here();
  ranks_.resume();
}

void JobShell::on_look(const RanksLookedAt& seen) {
  RanksLookedAt of_job = seen;
  for (RankEnded& ended : of_job.ended) ended.rank -= options_.first_rank;
  tell_job(of_job);
}

LineTarget& JobShell::lines_of(int rank, bool error) {
  const RankOutput& output = *outputs_.at(static_cast<size_t>(rank - options_.first_rank));
  return error ? *output.err : *output.out;
}

void JobShell::tell_job(const JobEvent& event) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  for (const JobAction& action : job_.on(event, now)) {
    std::visit([this](const auto& what) { carry_out(what); }, action);
  }
}

void JobShell::carry_out(const Say& action) {
  console_.write_line(console_.err(), "zeroth: " + printable_message(action.text));
}

void JobShell::carry_out(const SignalRanks& action) {
  ranks_.signal(action.signal);
}

void JobShell::carry_out(const Grant& action) {
  grace_timer_.start(action.time, [this] { tell_job(GraceOver{}); });
}

void JobShell::carry_out(const LookForStopped& action) {
  stopped_timer_.start(action.time, [this] { tell_job(StillStopped{ranks_.find_stopped()}); });
}

void JobShell::carry_out(const Finish& /*action*/) {
  grace_timer_.cancel();
  ranks_.finish([this] { end_output(); });
}

void JobShell::carry_out(const Leave& /*action*/) {
  stop();
}

void JobShell::stop() {
  over_ = true;
  io_.stop();
}

// Once all is written, the loop has nothing left to wait for.
void JobShell::end_output() {
  console_.keep_progress();
  console_.out().when_empty([this] { console_.err().when_empty([this] { stop(); }); });
}

// With the number that the rank has in the whole job.
Death JobShell::with_global_rank(const Death& death) const {
  Death global = death;
  global.rank += options_.first_rank;
  return global;
}

const Tail& JobShell::tail_of(const Death& death) const {
  return outputs_[static_cast<size_t>(death.rank)]->tail;
}

// Unless they are what stands right above on the same screen. Peers of a rank that was killed print
// on without a word of it, so there they are always repeated.
std::string JobShell::with_last_words(const Death& death) {
  const Tail& tail = tail_of(death);
  const bool repeat = death.ending.by_signal && outputs_.size() > 1;
  const bool shown = !repeat && tail.ends(console_.err());
  return describe_death(with_global_rank(death)) + (shown ? "" : describe_last_lines(tail.lines()));
}

}  // namespace zeroth::launcher
