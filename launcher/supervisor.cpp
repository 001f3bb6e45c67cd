#include "launcher/supervisor.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/output.h"
#include "launcher/verdict.h"

namespace zeroth::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct RunningRank {
  RankProcess process;
  std::optional<Ending> ending;
  Tail tail;
  std::unique_ptr<RankStream> out;
  std::unique_ptr<RankStream> err;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);

  JobOutcome run(const Program& program, const std::vector<RankSpec>& ranks);

 private:
  void start_rank(const Program& program, const RankSpec& spec, size_t num_ranks);
  void open_streams(RunningRank& rank, const RankSpec& spec, size_t num_ranks);
  void wait_for_signals();
  void on_signal(int signal);
  void on_broken_output(int error);

  void collect_endings();
  void signal_all(int signal);
  void stop_all(int signal, milliseconds grace);
  void kill_all();

  void finish();
  void finish_output();
  bool all_ended() const;
  JobOutcome outcome();
  std::string tell(const Death& cause);

  SupervisorOptions options_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer kill_timer_;
  boost::asio::steady_timer output_timer_;
  Console console_;
  std::vector<std::unique_ptr<RunningRank>> ranks_;
  std::vector<Death> deaths_;
  Clock::time_point first_death_;
  int stop_signal_ = 0;    // from outside; 0: none came before a rank failed
  bool stopping_ = false;  // all ranks have been told to end
  bool killed_ = false;
  bool finishing_ = false;
  std::string output_error_;
};

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      signals_(io_, SIGINT, SIGTERM, SIGCHLD),
      kill_timer_(io_),
      output_timer_(io_),
      console_(io_, [this](int error) { on_broken_output(error); }) {
  if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);  // nohup wants to outlive its terminal
  ::signal(SIGPIPE, SIG_IGN);
}

JobOutcome Supervisor::run(const Program& program, const std::vector<RankSpec>& ranks) {
  for (const RankSpec& spec : ranks) start_rank(program, spec, ranks.size());
  wait_for_signals();
  collect_endings();
  io_.run();
  return outcome();
}

void Supervisor::start_rank(const Program& program, const RankSpec& spec, size_t num_ranks) {
  ranks_.push_back(std::make_unique<RunningRank>(
      RunningRank{RankProcess::start(program, spec), {}, {}, {}, {}}));
  open_streams(*ranks_.back(), spec, num_ranks);
}

void Supervisor::open_streams(RunningRank& rank, const RankSpec& spec, size_t num_ranks) {
  const std::string prefix = line_prefix(spec.rank, static_cast<int>(num_ranks));
  const bool progress = options_.progress_on_terminal && spec.rank == 0;
  rank.out =
      std::make_unique<RankStream>(io_, std::move(rank.process.out), console_,
                                   RankStream::Route{console_.out(), rank.tail, prefix, progress});
  rank.err =
      std::make_unique<RankStream>(io_, std::move(rank.process.err), console_,
                                   RankStream::Route{console_.err(), rank.tail, prefix, false});
  rank.out->start([this] { finish_output(); });
  rank.err->start([this] { finish_output(); });
}

void Supervisor::wait_for_signals() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    signal == SIGCHLD ? collect_endings() : on_signal(signal);
    wait_for_signals();
  });
}

void Supervisor::on_signal(int signal) {
  if (finishing_) return io_.stop();
  if (stopping_) return kill_all();
  stop_signal_ = signal;
  stop_all(signal, options_.signal_grace);
}

void Supervisor::on_broken_output(int error) {
  output_error_ = std::strerror(error);
  if (error != EPIPE || stopping_ || finishing_) return;
  stop_signal_ = SIGPIPE;
  stop_all(SIGTERM, options_.failure_grace);
}

void Supervisor::collect_endings() {
  if (finishing_) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RunningRank& rank = *ranks_[i];
    if (rank.ending) continue;
    rank.ending = rank.process.poll_ending();
    if (!rank.ending) continue;
    rank.out->drain();
    rank.err->drain();
    if (!rank.ending->failed()) continue;
    if (deaths_.empty()) first_death_ = Clock::now();
    const auto since_first = std::chrono::duration_cast<milliseconds>(Clock::now() - first_death_);
    deaths_.push_back({static_cast<int>(i), *rank.ending, since_first, stopping_});
  }
  if (all_ended()) return finish();
  if (!deaths_.empty() && !stopping_) stop_all(SIGTERM, options_.failure_grace);
}

void Supervisor::signal_all(int signal) {
  for (const auto& rank : ranks_)
    if (!rank->ending) rank->process.signal_group(signal);
}

void Supervisor::stop_all(int signal, milliseconds grace) {
  stopping_ = true;
  signal_all(signal);
  kill_timer_.expires_after(grace);
  kill_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) kill_all();
  });
}

void Supervisor::kill_all() {
  killed_ = true;
  signal_all(SIGKILL);
}

void Supervisor::finish() {
  finishing_ = true;
  kill_timer_.cancel();
  for (const auto& rank : ranks_) rank->process.kill_and_reap();
  output_timer_.expires_after(options_.output_grace);
  output_timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    for (const auto& rank : ranks_) {
      for (RankStream* stream : {rank->out.get(), rank->err.get()}) {
        stream->drain();
        stream->close();
      }
    }
  });
  finish_output();
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
  if (deaths_.empty()) return {0, output_error_.empty() ? "" : "output was lost: " + output_error_};
  const std::string killed =
      killed_ ? "\nzeroth: ranks that did not end by themselves were killed" : "";
  if (stop_signal_ != 0)
    return {128 + stop_signal_, "stopped by " + signal_name(stop_signal_) + killed};
  const Death& cause = find_cause(deaths_, options_.same_failure);
  return {exit_status(cause.ending), tell(cause) + killed};
}

}  // namespace

JobOutcome supervise(const Program& program, const std::vector<RankSpec>& ranks,
                     const SupervisorOptions& options) {
  return Supervisor(options).run(program, ranks);
}

}  // namespace zeroth::launcher
