#include "launcher/run/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "base/process_limits.h"
#include "launcher/run/guard.h"
#include "launcher/run/job.h"
#include "launcher/run/oom_watch.h"
#include "launcher/run/orphans.h"
#include "launcher/run/output.h"
#include "launcher/run/rank_process.h"
#include "launcher/run/running_timer.h"
#include "launcher/run/verdict.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOrphanLimit{1000};  // only a process stuck in the kernel takes as long

struct RunningRank {
  RankProcess process;
  Tail tail;
  std::unique_ptr<OutputSink> log;
  std::unique_ptr<RankStream> out;
  std::unique_ptr<RankStream> err;
};

// The shell of a Job: tells it what happens here, and does what it says.
class Supervisor {
 public:
  Supervisor(size_t num_ranks, const SupervisorOptions& options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { end_processes(); }

  JobOutcome run(const Program& program, const std::vector<RankSpec>& ranks);

 private:
  void start_rank(const Program& program, const RankSpec& spec);
  void open_streams(RunningRank& rank, const RankSpec& spec);
  void wait_for_signals();
  void suspend();

  void tell_job(const JobEvent& event);
  void carry_out(const Say& action);
  void carry_out(const SignalRanks& action);
  void carry_out(const Grant& action);
  void carry_out(const LookForStopped& action);
  void carry_out(const Finish& action);
  void carry_out(const Leave& action);

  void look_at_ranks();
  RankEnded take_ending(int number, Ending ending);
  std::vector<StoppedRank> find_stopped() const;
  void end_processes();
  void close_output();
  void finish_output();
  std::string with_last_words(const Death& death);

  SupervisorOptions options_;
  int first_rank_ = 0;  // the job counts from 0 what is started here
  Job job_;
  std::optional<Guard> guard_;
  OomWatch oom_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  RunningTimer grace_timer_;
  RunningTimer output_timer_;
  RunningTimer stopped_timer_;
  Console console_;
  std::vector<std::unique_ptr<RunningRank>> ranks_;
};

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Supervisor::Supervisor(size_t num_ranks, const SupervisorOptions& options)
    : options_(options),
      job_(num_ranks, options.job),
      guard_(std::in_place),
      oom_(options.system_root),
      signals_(io_, SIGINT, SIGTERM, SIGCHLD),
      grace_timer_(io_),
      output_timer_(io_),
      stopped_timer_(io_),
      console_(io_, [this](int fd, int error) {
        if (fd == STDOUT_FILENO) tell_job(OutputLost{error});
      }) {
  for (const int signal : {SIGHUP, SIGTSTP})  // nohup wants to outlive its terminal
    if (!is_ignored(signal)) signals_.add(signal);
  ::signal(SIGPIPE, SIG_IGN);
  adopt_orphans();
}

JobOutcome Supervisor::run(const Program& program, const std::vector<RankSpec>& ranks) {
  first_rank_ = ranks.front().rank;
  if (options_.world_size == 0) options_.world_size = static_cast<int>(ranks.size());
  for (const RankSpec& spec : ranks) start_rank(program, spec);
  wait_for_signals();
  look_at_ranks();
  io_.run();
  return job_.outcome([this](const Death& death) { return with_last_words(death); },
                      oom_.take_new_kills());
}

void Supervisor::start_rank(const Program& program, const RankSpec& spec) {
  RankSpec marked = spec;
  marked.env.emplace_back(Guard::kVariable, guard_->mark());
  ranks_.push_back(std::make_unique<RunningRank>(
      RunningRank{RankProcess::start(program, marked), {}, {}, {}, {}}));
  open_streams(*ranks_.back(), spec);
}

void Supervisor::open_streams(RunningRank& rank, const RankSpec& spec) {
  const std::string prefix = options_.bare_lines ? "" : line_prefix(spec.rank, options_.world_size);
  const bool progress = options_.progress_on_terminal && spec.rank == 0;
  if (!options_.rank_logs.empty()) {
    const int file = options_.rank_logs[ranks_.size() - 1];
    rank.log = std::make_unique<OutputSink>(io_, file, [this, number = spec.rank](int error) {
      carry_out(Say{
          fmt::format("warning: the log of rank {} ends here: {}", number, system_reason(error))});
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

void Supervisor::wait_for_signals() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    if (signal == SIGCHLD) {
      look_at_ranks();
    } else if (signal == SIGTSTP) {
      suspend();
    } else {
      tell_job(Signalled{signal});
    }
    wait_for_signals();
  });
}

void Supervisor::suspend() {
  std::vector<const RankProcess*> running;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (job_.runs(static_cast<int>(i))) running.push_back(&ranks_[i]->process);
  }
  suspend_with(running);
}

void Supervisor::tell_job(const JobEvent& event) {
  const auto now =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
  for (const JobAction& action : job_.on(event, now)) {
    std::visit([this](const auto& what) { carry_out(what); }, action);
  }
}

void Supervisor::carry_out(const Say& action) {
  console_.write_line(console_.err(), "zeroth: " + action.text);
}

void Supervisor::carry_out(const SignalRanks& action) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (job_.runs(static_cast<int>(i))) ranks_[i]->process.signal_group(action.signal);
  }
}

void Supervisor::carry_out(const Grant& action) {
  grace_timer_.start(action.time, [this] { tell_job(GraceOver{}); });
}

void Supervisor::carry_out(const LookForStopped& action) {
  stopped_timer_.start(action.time, [this] { tell_job(StillStopped{find_stopped()}); });
}

void Supervisor::carry_out(const Finish& /*action*/) {
  grace_timer_.cancel();
  end_processes();
  output_timer_.start(options_.output_grace, [this] { close_output(); });
  finish_output();
}

void Supervisor::carry_out(const Leave& /*action*/) {
  io_.stop();
}

void Supervisor::look_at_ranks() {
  if (job_.finishing()) return;
  const std::string warning = guard_->renew_if_ended();
  if (!warning.empty()) carry_out(Say{"warning: " + warning});
  RanksLookedAt seen;
  std::vector<pid_t> known = {guard_->pid()};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int number = static_cast<int>(i);
    if (!job_.runs(number)) continue;
    if (const auto ending = ranks_[i]->process.poll_ending()) {
      seen.ended.push_back(take_ending(number, *ending));
    } else {
      known.push_back(ranks_[i]->process.pid());
    }
  }
  reap_orphans(known);
  seen.stopped = find_stopped();
  tell_job(seen);
}

RankEnded Supervisor::take_ending(int number, Ending ending) {
  RunningRank& rank = *ranks_[static_cast<size_t>(number)];
  rank.process.kill_and_reap();
  rank.out->drain();
  rank.err->drain();
  RankEnded ended{.rank = number, .ending = ending};
  if (ending.failed() && !job_.kills()) ended.reason = oom_.explain(ending);
  return ended;
}

std::vector<StoppedRank> Supervisor::find_stopped() const {
  std::vector<StoppedRank> stopped;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankProcess& process = ranks_[i]->process;
    if (process.pid() > 0 && process.is_stopped()) {
      stopped.push_back({first_rank_ + static_cast<int>(i), process.pid()});
    }
  }
  return stopped;
}

void Supervisor::end_processes() {
  for (const auto& rank : ranks_) rank->process.kill_and_reap();
  guard_.reset();
  kill_orphans(kOrphanLimit);
}

void Supervisor::close_output() {
  for (const auto& rank : ranks_) {
    for (RankStream* stream : {rank->out.get(), rank->err.get()}) {
      stream->drain();
      stream->close();
    }
  }
}

// Once all is read and written, the loop has nothing left to wait for.
void Supervisor::finish_output() {
  const auto is_open = [](const auto& rank) {
    return rank->out->is_open() || rank->err->is_open();
  };
  if (!job_.finishing() || std::any_of(ranks_.begin(), ranks_.end(), is_open)) return;
  console_.keep_progress();
  console_.out().when_empty([this] { console_.err().when_empty([this] { io_.stop(); }); });
}

// Unless they are what stands right above on the same screen. Peers of a rank that was killed print
// on without a word of it, so there they are always repeated.
std::string Supervisor::with_last_words(const Death& death) {
  const Tail& tail = ranks_[static_cast<size_t>(death.rank)]->tail;
  const bool repeat = death.ending.by_signal && ranks_.size() > 1;
  const bool shown = !repeat && tail.ends(console_.err());
  Death told = death;
  told.rank += first_rank_;
  return describe_death(told) + (shown ? "" : describe_last_lines(tail.lines()));
}

}  // namespace

JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options) {
  return Supervisor(ranks.size(), options).run(program, ranks);
}

}  // namespace zeroth::launcher
