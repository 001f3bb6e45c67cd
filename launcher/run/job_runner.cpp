#include "launcher/run/job_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/signals.h"
#include "base/text/printable.h"
#include "launcher/run/exit_status.h"
#include "launcher/run/rank_plan.h"

namespace zeroth::launcher {
namespace {

// Stops this process as SIGTSTP does by default, except if no process could continue it. Returns
// when it is continued.
void suspend_self() {
  struct sigaction by_default {
  }, ours{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &by_default, &ours);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &ours, nullptr);
}

// ConsoleLineSink shows the lines of one output of a rank: on the launcher's outputs with the rank
// before them, and in the rank's log.
class ConsoleLineSink final : public LineSink {
 public:
  struct Route {
    OutputSink& sink;
    Tail& tail;
    std::string prefix;
    bool progress = false;      // '\r' redraws a progress line
    OutputSink* log = nullptr;  // also receives every line, without the prefix
  };

  ConsoleLineSink(Console& console, Route route) : console_(console), route_(std::move(route)) {}

  void write(std::string_view text, LineEnd end) override {
    const std::string line = route_.prefix + std::string(text);
    if (end == LineEnd::kReturn) return console_.write_progress(line);
    console_.write_line(route_.sink, line);
    if (route_.log != nullptr) route_.log->write_line(text);
    route_.tail.add(text, route_.sink);
  }
  bool is_full() const override { return route_.sink.is_full(); }
  void when_empty(std::function<void()> callback) override {
    route_.sink.when_empty(std::move(callback));
  }
  bool splits_returns() const override { return route_.progress; }

 private:
  Console& console_;
  Route route_;
};

}  // namespace

JobRunner::JobRunner(boost::asio::io_context& io, JobRanks& ranks, const JobRunnerOptions& options)
    : io_(io),
      ranks_(ranks),
      options_(options),
      job_(static_cast<size_t>(options.num_ranks), options.job),
      signals_(io),
      grace_timer_(io),
      stopped_timer_(io),
      console_(io, [this](int fd, int error) {
        if (fd == STDOUT_FILENO) handle_event(OutputLost{error});
      }) {
  for (const int signal : termination_signals()) signals_.add(signal);
  if (!is_ignored(SIGTSTP)) signals_.add(SIGTSTP);
  ::signal(SIGPIPE, SIG_IGN);
  for (int i = 0; i < options_.num_ranks; ++i) outputs_.push_back(make_output(i));
}

std::unique_ptr<JobRunner::RankOutput> JobRunner::make_output(int index) {
  const int rank = options_.first_rank + index;
  auto output = std::make_unique<RankOutput>();
  if (!options_.rank_logs.empty()) {
    const int log_fd = options_.rank_logs[static_cast<size_t>(index)];
    output->log = std::make_unique<OutputSink>(io_, log_fd, [this, rank](int error) {
      on_warning(fmt::format("the log of rank {} ends here: {}", rank, system_reason(error)));
    });
  }
  const std::string prefix =
      options_.unprefixed_lines ? "" : line_prefix(rank, options_.world_size);
  const auto lines = [&](OutputSink& sink, bool progress) {
    return std::make_unique<ConsoleLineSink>(
        console_, ConsoleLineSink::Route{sink, output->tail, prefix, progress, output->log.get()});
  };
  output->out = lines(console_.out(), options_.progress_on_terminal && rank == 0);
  output->err = lines(console_.err(), false);
  return output;
}

JobOutcome JobRunner::run() {
  wait_for_signals();
  io_.run();
  ZEROTH_CHECK(finished_, "the event loop was stopped while the job was running");
  JobOutcome outcome =
      job_.outcome([this](const RankFailure& failure) { return describe_with_tail(failure); },
                   ranks_.read_new_oom_kills());
  if (const RankFailure* const cause = job_.cause();
      cause != nullptr && outcome.end == JobEnd::kFailed)
    outcome.cause = describe_root_cause(*cause, output_of(cause->rank).tail.lines());
  return outcome;
}

void JobRunner::wait_for_signals() {
  signals_.async_wait(
      [this, alive = std::weak_ptr(lifetime_)](boost::system::error_code error, int signal) {
        if (error || alive.expired()) return;
        if (signal != SIGTSTP) ranks_.record_signal();
        signal == SIGTSTP ? suspend() : handle_event(SignalReceived{signal});
        wait_for_signals();
      });
}

// Suspends ranks explicitly: a terminal's signals do not reach their process groups.
void JobRunner::suspend() {
  ranks_.suspend();
  suspend_self();
  ranks_.resume();
}

const JobRunner::RankOutput& JobRunner::output_of(int rank) const {
  return *outputs_.at(static_cast<size_t>(rank - options_.first_rank));
}

LineSink& JobRunner::line_sink(int rank, bool error) {
  return error ? *output_of(rank).err : *output_of(rank).out;
}

void JobRunner::handle_event(const JobEvent& event) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  for (const JobAction& action : job_.on(event, now)) {
    std::visit([this](const auto& what) { execute(what); }, action);
  }
}

void JobRunner::execute(const LogLine& action) {
  console_.write_line(console_.err(), "zeroth: " + printable_message(action.text));
}

void JobRunner::execute(const StartGracePeriod& action) {
  grace_timer_.start(action.time, [this] { handle_event(GracePeriodOver{}); });
}

void JobRunner::execute(const PollSuspendedRanks& action) {
  stopped_timer_.start(action.time,
                       [this] { handle_event(SuspendedRanksPolled{ranks_.find_suspended()}); });
}

void JobRunner::execute(const DrainOutput& /*action*/) {
  grace_timer_.cancel();
  ranks_.finish([this] { end_output(); });
}

void JobRunner::stop() {
  finished_ = true;
  io_.stop();
}

// Stops the loop once all is written.
void JobRunner::end_output() {
  console_.keep_progress();
  console_.out().when_empty([this] { console_.err().when_empty([this] { stop(); }); });
}

// Describes the failure, with the rank's last lines unless they are directly above on the same
// screen. If a rank was killed, its peers' output follows without mentioning it, so its lines are
// always repeated.
std::string JobRunner::describe_with_tail(const RankFailure& failure) {
  const Tail& tail = output_of(failure.rank).tail;
  const bool repeat = failure.exit_status.by_signal && outputs_.size() > 1;
  const bool shown = !repeat && tail.is_last_in(console_.err());
  return describe_failure(failure) + (shown ? "" : describe_last_lines(tail.lines()));
}

}  // namespace zeroth::launcher
