#include "launcher/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "base/process_limits.h"
#include "launcher/guard.h"
#include "launcher/oom_watch.h"
#include "launcher/orphans.h"
#include "launcher/output.h"
#include "launcher/running_timer.h"
#include "launcher/stopped_ranks.h"
#include "launcher/suspend.h"
#include "launcher/verdict.h"

namespace zeroth::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kOrphanLimit{1000};  // only a process stuck in the kernel takes as long
// timeout(1) and others send a signal to the process and to its group: nobody means the second one.
constexpr milliseconds kSameSignal{250};
// Whoever suspends a whole job stops one process after the other, the launcher among them.
constexpr milliseconds kStoppedForLong{1000};

struct RunningRank {
  RankProcess process;
  std::optional<Ending> ending;
  Tail tail;
  std::unique_ptr<OutputSink> log;
  std::unique_ptr<RankStream> out;
  std::unique_ptr<RankStream> err;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { end_processes(); }

  JobOutcome run(const Program& program, const std::vector<RankSpec>& ranks);

 private:
  void start_rank(const Program& program, const RankSpec& spec, size_t num_ranks);
  void open_streams(RunningRank& rank, const RankSpec& spec, size_t num_ranks);
  void say(const std::string& text);
  void wait_for_signals();
  void on_signal(int signal);
  void on_broken_output(int fd, int error);
  void suspend();

  void collect_endings();
  void on_ending(RunningRank& rank, int number);
  void on_failures(size_t first);
  bool is_unforeseen(const Death& death) const;
  std::string describe_stopped() const;
  std::vector<StoppedRank> find_stopped() const;
  void look_for_stopped();
  std::vector<pid_t> running_pids() const;
  void signal_all(int signal);
  void stop_all(int signal, milliseconds grace);
  void kill_all_after(milliseconds grace);
  void kill_all();

  void finish();
  void end_processes();
  void finish_output();
  bool all_ended() const;
  JobOutcome outcome();
  JobOutcome lost_outcome() const;
  JobOutcome stopped_outcome();
  JobOutcome failed_outcome();
  std::string tell(const Death& cause);

  SupervisorOptions options_;
  std::optional<Guard> guard_;
  OomWatch oom_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  RunningTimer kill_timer_;
  RunningTimer output_timer_;
  RunningTimer stopped_timer_;
  Console console_;
  std::vector<std::unique_ptr<RunningRank>> ranks_;
  std::vector<Death> deaths_;
  Clock::time_point first_death_;
  StoppedRanks stopped_;
  std::string stopped_ranks_;  // that could not take part when another one failed
  int stop_signal_ = 0;        // from outside; 0: none came before a rank failed
  Clock::time_point stop_time_;
  int told_signal_ = 0;    // what ranks were last told to end by
  bool stopping_ = false;  // all ranks have been told to end
  bool hurried_ = false;   // they have no longer than failure_grace
  bool killed_ = false;
  bool finishing_ = false;
  int output_error_ = 0;  // 0: all was written
};

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      guard_(std::in_place),
      oom_(options.system_root),
      signals_(io_, SIGINT, SIGTERM, SIGCHLD),
      kill_timer_(io_),
      output_timer_(io_),
      stopped_timer_(io_),
      console_(io_, [this](int fd, int error) { on_broken_output(fd, error); }) {
  for (const int signal : {SIGHUP, SIGTSTP})  // nohup wants to outlive its terminal
    if (!is_ignored(signal)) signals_.add(signal);
  ::signal(SIGPIPE, SIG_IGN);
  adopt_orphans();
}

JobOutcome Supervisor::run(const Program& program, const std::vector<RankSpec>& ranks) {
  for (const RankSpec& spec : ranks) start_rank(program, spec, ranks.size());
  wait_for_signals();
  collect_endings();
  io_.run();
  return outcome();
}

void Supervisor::start_rank(const Program& program, const RankSpec& spec, size_t num_ranks) {
  RankSpec marked = spec;
  marked.env.emplace_back(Guard::kVariable, guard_->mark());
  ranks_.push_back(std::make_unique<RunningRank>(
      RunningRank{RankProcess::start(program, marked), {}, {}, {}, {}, {}}));
  open_streams(*ranks_.back(), spec, num_ranks);
}

void Supervisor::open_streams(RunningRank& rank, const RankSpec& spec, size_t num_ranks) {
  const std::string prefix = line_prefix(spec.rank, static_cast<int>(num_ranks));
  const bool progress = options_.progress_on_terminal && spec.rank == 0;
  if (!options_.rank_logs.empty()) {
    const int file = options_.rank_logs[static_cast<size_t>(spec.rank)];
    rank.log = std::make_unique<OutputSink>(io_, file, [this, number = spec.rank](int error) {
      say(fmt::format("warning: the log of rank {} ends here: {}", number, system_reason(error)));
    });
  }
  const auto open = [&](FileDescriptor& source, OutputSink& sink, bool redraws) {
    const RankStream::Route route{sink, rank.tail, prefix, redraws, rank.log.get()};
    auto stream = std::make_unique<RankStream>(io_, std::move(source), console_, route);
    stream->start([this] { finish_output(); });
    return stream;
  };
  rank.out = open(rank.process.out, console_.out(), progress);
  rank.err = open(rank.process.err, console_.err(), false);
}

void Supervisor::say(const std::string& text) {
  console_.write_line(console_.err(), "zeroth: " + text);
}

void Supervisor::wait_for_signals() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    signal == SIGCHLD ? collect_endings() : signal == SIGTSTP ? suspend() : on_signal(signal);
    wait_for_signals();
  });
}

void Supervisor::on_signal(int signal) {
  if (finishing_) return io_.stop();
  if (signal == stop_signal_ && Clock::now() < stop_time_ + kSameSignal) return;
  if (stopping_) return kill_all();
  stop_signal_ = signal;
  stop_time_ = Clock::now();
  if (!options_.quiet)
    say(fmt::format("{}: ranks have {} s to finish and save; a second signal ends them at once",
                    signal_name(signal), options_.signal_grace.count() / 1000));
  stop_all(signal == SIGHUP ? SIGTERM : signal, options_.signal_grace);
  signal_all(SIGCONT);  // one that is stopped could not obey
}

// How a run ends does not depend on who watches it.
void Supervisor::on_broken_output(int fd, int error) {
  if (fd != STDOUT_FILENO) return;
  output_error_ = error;
  if (!options_.output_is_all)
    say(fmt::format("warning: standard output is lost from here on: {}; the job goes on",
                    system_reason(error)));
}

void Supervisor::suspend() {
  std::vector<const RankProcess*> running;
  for (const auto& rank : ranks_)
    if (!rank->ending) running.push_back(&rank->process);
  suspend_with(running);
}

void Supervisor::collect_endings() {
  if (finishing_) return;
  const std::string warning = guard_->renew_if_ended();
  if (!warning.empty()) say("warning: " + warning);
  const size_t known = deaths_.size();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RunningRank& rank = *ranks_[i];
    if (!rank.ending && (rank.ending = rank.process.poll_ending()))
      on_ending(rank, static_cast<int>(i));
  }
  std::vector<pid_t> known_pids = running_pids();
  known_pids.push_back(guard_->pid());
  reap_orphans(known_pids);
  if (all_ended()) return finish();
  if (deaths_.size() > known) on_failures(known);
  look_for_stopped();
}

void Supervisor::on_ending(RunningRank& rank, int number) {
  rank.process.kill_and_reap();
  rank.out->drain();
  rank.err->drain();
  if (!rank.ending->failed()) return;
  if (deaths_.empty()) first_death_ = Clock::now();
  const auto since_first = std::chrono::duration_cast<milliseconds>(Clock::now() - first_death_);
  Death death{number, *rank.ending, since_first, stopping_, {}};
  if (!killed_) death.reason = oom_.explain(*rank.ending);
  deaths_.push_back(std::move(death));
}

// `first`: of the deaths that are new. While ranks finish on a signal, one that fails leaves the
// others waiting for it.
void Supervisor::on_failures(size_t first) {
  if (!stopping_) {
    stopped_ranks_ = describe_stopped();
    hurried_ = true;
    return stop_all(SIGTERM, options_.failure_grace);
  }
  const auto is_bad = [this](const Death& death) { return is_unforeseen(death); };
  const auto begin = deaths_.begin() + static_cast<std::ptrdiff_t>(first);
  if (hurried_ || std::none_of(begin, deaths_.end(), is_bad)) return;
  hurried_ = true;
  kill_all_after(options_.failure_grace);
}

// Neither what the ranks were told to do nor what we did to them.
bool Supervisor::is_unforeseen(const Death& death) const {
  const bool ours = killed_ && death.ending == Ending{true, SIGKILL};
  return !ours && !obeyed(death.ending, told_signal_);
}

std::string Supervisor::describe_stopped() const {
  std::string text;
  for (const StoppedRank& stopped : find_stopped())
    text += fmt::format(
        "\nzeroth: rank {} was stopped (SIGSTOP or a debugger) when that happened: others may have "
        "waited for it",
        stopped.rank);
  return text;
}

std::vector<StoppedRank> Supervisor::find_stopped() const {
  std::vector<StoppedRank> stopped;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankProcess& process = ranks_[i]->process;
    if (!ranks_[i]->ending && process.is_stopped())
      stopped.push_back({static_cast<int>(i), process.pid()});
  }
  return stopped;
}

void Supervisor::look_for_stopped() {
  if (!stopped_.any() && find_stopped().empty()) return;
  stopped_timer_.start(kStoppedForLong, [this] {
    if (stopping_ || finishing_) return;
    const std::string text = stopped_.tell(find_stopped(), running_pids().size());
    if (!text.empty()) say(text);
  });
}

std::vector<pid_t> Supervisor::running_pids() const {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_)
    if (!rank->ending) pids.push_back(rank->process.pid());
  return pids;
}

void Supervisor::signal_all(int signal) {
  for (const auto& rank : ranks_)
    if (!rank->ending) rank->process.signal_group(signal);
}

void Supervisor::stop_all(int signal, milliseconds grace) {
  stopping_ = true;
  told_signal_ = signal;
  signal_all(signal);
  kill_all_after(grace);
}

void Supervisor::kill_all_after(milliseconds grace) {
  kill_timer_.start(grace, [this] { kill_all(); });
}

void Supervisor::kill_all() {
  killed_ = true;
  signal_all(SIGKILL);
}

void Supervisor::finish() {
  finishing_ = true;
  kill_timer_.cancel();
  end_processes();
  output_timer_.start(options_.output_grace, [this] {
    for (const auto& rank : ranks_) {
      for (RankStream* stream : {rank->out.get(), rank->err.get()}) {
        stream->drain();
        stream->close();
      }
    }
  });
  finish_output();
}

void Supervisor::end_processes() {
  for (const auto& rank : ranks_) rank->process.kill_and_reap();
  guard_.reset();
  kill_orphans(kOrphanLimit);
}

// Once all is read and written, the loop has nothing left to wait for.
void Supervisor::finish_output() {
  const auto is_open = [](const auto& rank) {
    return rank->out->is_open() || rank->err->is_open();
  };
  if (!finishing_ || std::any_of(ranks_.begin(), ranks_.end(), is_open)) return;
  console_.keep_progress();
  console_.out().when_empty([this] { console_.err().when_empty([this] { io_.stop(); }); });
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank->ending.has_value(); });
}

// With the rank's last lines, unless they are what stands right above on the same screen. Peers of
// a rank that was killed print on without a word of it, so there they are always repeated.
std::string Supervisor::tell(const Death& cause) {
  const Tail& tail = ranks_[static_cast<size_t>(cause.rank)]->tail;
  const bool repeat = cause.ending.by_signal && ranks_.size() > 1;
  const bool shown = !repeat && tail.ends(console_.err());
  return describe_death(cause) + (shown ? "" : describe_last_lines(tail.lines()));
}

JobOutcome Supervisor::outcome() {
  if (deaths_.empty() && output_error_ != 0 && options_.output_is_all) return lost_outcome();
  if (deaths_.empty()) return {0, ""};
  JobOutcome outcome = stop_signal_ != 0 ? stopped_outcome() : failed_outcome();
  if (killed_) outcome.message += "\nzeroth: ranks that did not end by themselves were killed";
  return outcome;
}

// A reader that leaves is no error: other commands end by SIGPIPE then, without a word.
JobOutcome Supervisor::lost_outcome() const {
  if (output_error_ == EPIPE) return {128 + SIGPIPE, ""};
  return {
      1, fmt::format("error: standard output cannot be written: {}", system_reason(output_error_))};
}

JobOutcome Supervisor::stopped_outcome() {
  std::string message = "stopped by " + signal_name(stop_signal_);
  for (const Death& death : deaths_)
    if (is_unforeseen(death)) message += "\nzeroth: " + tell(death);
  return {128 + stop_signal_, message};
}

JobOutcome Supervisor::failed_outcome() {
  const Death& cause = find_cause(deaths_, options_.same_failure);
  std::string message = tell(cause) + stopped_ranks_;
  const auto kills = oom_.take_new_kills();
  if (kills && *kills > 0)
    message += fmt::format(
        "\nzeroth: the kernel's out-of-memory killer ended {} process{} meanwhile, perhaps one "
        "that a rank had started",
        *kills, *kills == 1 ? "" : "es");
  return {exit_status(cause.ending), message};
}

}  // namespace

JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options) {
  return Supervisor(options).run(program, ranks);
}

}  // namespace zeroth::launcher
