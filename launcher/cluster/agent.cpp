#include "launcher/cluster/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/machine/signals.h"
#include "base/machine/standard_streams.h"
#include "base/machine/timer.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/cluster/line_forwarder.h"
#include "launcher/cluster/node_job.h"
#include "launcher/machine/find_program.h"
#include "launcher/run/local_ranks.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/heartbeat_channel.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLivenessTimeout{15'000};
// A launcher that waits for its disk is silent, too; its exit is detected at once.
constexpr int kLivenessFactor = 4;
constexpr milliseconds kDrainedLimit{5'000};  // for the launcher to receive the last message

void log_line(const std::string& line) {
  write_all(STDERR_FILENO, printable_message(fmt::format("zeroth agent: {}\n", line)));
}

class Agent final : public RanksListener {
 public:
  Agent(boost::asio::io_context& io, std::shared_ptr<Channel> channel, const HmacKey& secret,
        std::filesystem::path zeroth_directory)
      : io_(io),
        secret_(secret),
        zeroth_directory_(std::move(zeroth_directory)),
        signals_(io),
        timer_(io),
        idle_timer_(io),
        lines_(io, [this](const OutputLines& lines) { launcher_.send(lines); }),
        launcher_(io, std::move(channel), kLivenessTimeout,
                  {[this](const Message& message) {
                     std::visit([this](const auto& what) { on(what); }, message);
                   },
                   [this](const std::string& why) { on_launcher_lost(why); }}) {
    for (const int signal : termination_signals()) signals_.add(signal);
  }

  int run(const Message& first) {
    wait_for_signals();
    send(first);
    io_.run();
    return status_;
  }

  // Logs periodically that this node waits for its ranks to start: the launcher's own log is not
  // visible here.
  void log_waiting() {
    constexpr milliseconds kLook{1'000};
    idle_timer_.start(kLook, [this, kLook] {
      idle_ += kLook;
      if (start_) {
        idle_ = milliseconds(0);
        slow_ = SlowWait();
      } else if (slow_.due(idle_)) {
        log_line(
            fmt::format("this host has joined and waits for the launcher to start ranks here: {} s "
                        "so far, until the run ends",
                        idle_.count() / 1000));
      }
      log_waiting();
    });
  }

  void on_ranks_polled(const RanksPolled& seen) override {
    running_ -= std::min(running_, seen.ended.size());
    send(seen);
    if (lost_ && running_ == 0) end(lost_launcher_status());
  }

  void on_signal(int /*signal*/) override {}  // there are no other processes that start ranks

  void on_warning(const std::string& text) override { send(Warning{text}); }

  LineSink& line_sink(int rank, bool error) override {
    return lines_.sink_for(rank, error, rank == 0 && !error && start_->terminal_columns);
  }

 private:
  void on(const RemoteJob& job) {
    if (job_ && (start_ || !stays_for_restart())) throw Error("unexpected second job");
    launcher_.set_liveness_timeout(job.liveness_timeout, kLivenessFactor);
    job_.emplace(job, zeroth_directory_);
    std::visit([this](const auto& answer) { send(answer); }, job_->check_readiness());
  }

  void on(const StartRanks& start) {
    if (!job_ || start_) throw Error("unexpected start without a job");
    start_ = start;
    int status = 1;
    std::string reason;
    try {
      const RankPlan plan = job_->plan(start, derive_rank_secret(secret_, start.attempt));
      running_ = plan.ranks.size();
      ranks_.emplace(io_, LocalRanksOptions{});
      ranks_->start(job_->program(), plan.ranks, *this);
      return;
    } catch (const ProgramError& error) {
      status = error.status();
      reason = error.what();
    } catch (const Error& error) {
      reason = error.what();
    }
    ranks_.reset();  // ends the ranks that had started
    running_ = 0;
    RanksPolled failed;
    for (int i = 0; i < start.num_ranks; ++i)
      failed.ended.push_back(
          {.rank = start.first_rank + i, .exit_status = {false, status}, .reason = reason});
    send(failed);
  }

  void on(const SignalRanks& message) {
    if (ranks_) ranks_->signal(message.signal);
  }

  void on(const Suspend& message) {
    launcher_.suspend_liveness(message.stop);
    if (!ranks_) return;
    message.stop ? ranks_->suspend() : ranks_->resume();
  }

  void on(const WindowUpdate& message) { lines_.on_window_update(message.bytes); }

  void on(const Drain& /*message*/) {
    ranks_ ? ranks_->finish([this] { send_drained(); }) : send_drained();
  }

  void on(const Shutdown& message) {
    if (start_) throw Error("unexpected shutdown while ranks are running");
    if (!message.why.empty()) log_line("the run continues without this host: " + message.why);
    status_ = message.status;
    io_.stop();
  }

  template <typename Other>
  void on(const Other& /*message*/) {
    throw Error("unexpected message");
  }

  // Flushes earlier lines first, so that the order is kept.
  void send(const Message& message) {
    lines_.flush();
    launcher_.send(message);
  }

  void wait_for_signals() {
    signals_.async_wait([this](boost::system::error_code error, int signal) {
      if (error) return;
      on_local_signal(signal);
      wait_for_signals();
    });
  }

  // A signal to this process, as from a batch system, applies to the job.
  void on_local_signal(int signal) {
    if (start_ && !lost_) return send(SignalReceived{signal});  // the launcher decides when to exit
    if (running_ > 0) return ranks_->signal(SIGKILL);
    status_ = 128 + signal;
    io_.stop();
  }

  void on_launcher_lost(const std::string& why) {
    if (status_ == 0) return io_.stop();
    lost_ = true;
    lines_.drop_all();
    if (running_ == 0) {
      log_line(start_ || stays_for_restart()
                   ? fmt::format("the launcher is lost: {}", why)
                   : fmt::format("the launcher has released this host: {}", why));
      return end(lost_launcher_status());
    }
    log_line(fmt::format("the launcher is lost: {}; terminating its ranks", why));
    ranks_->resume();
    for (const int signal : {SIGTERM, SIGCONT}) ranks_->signal(signal);
    timer_.start(job_->job().failure_grace, [this] { ranks_->signal(SIGKILL); });
  }

  void send_drained() {
    send(Drained{ranks_ ? ranks_->read_new_oom_kills() : std::nullopt});
    start_.reset();
    if (stays_for_restart()) return;
    status_ = 0;  // the launcher may exit once it has received this
    timer_.start(kDrainedLimit, [this] { io_.stop(); });
  }

  void end(int status) {
    status_ = status;
    timer_.cancel();
    if (!ranks_) return io_.stop();
    ranks_->finish([this] { io_.stop(); });
  }

  bool stays_for_restart() const { return job_ && job_->job().requeue_code; }  // to restart
  int lost_launcher_status() const { return stays_for_restart() ? *job_->job().requeue_code : 1; }

  boost::asio::io_context& io_;
  HmacKey secret_;
  std::filesystem::path zeroth_directory_;
  boost::asio::signal_set signals_;
  SuspendableTimer timer_;
  SuspendableTimer idle_timer_;
  milliseconds idle_{0};
  SlowWait slow_;
  LineForwarder lines_;
  HeartbeatChannel launcher_;
  std::optional<NodeJob> job_;
  std::optional<StartRanks> start_;
  std::optional<LocalRanks> ranks_;
  size_t running_ = 0;
  bool lost_ = false;
  int status_ = 1;
};

constexpr size_t kMinSecretBytes = 16, kMaxSecretBytes = 4096;
// OpenMPI's own variable is first: some builds also set PMI's, and a job of Slurm sets Slurm's.
constexpr std::array<const char*, 4> kTaskRankVariables = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                           "PMIX_RANK", "SLURM_PROCID"};

int parse_node(const std::string& text, const std::string& name) {
  const auto number = parse_number<int>(text);
  if (!number || *number < 0)
    throw UsageError("agent: {} is '{}', not the index of a host", name, shortened(text));
  return *number;
}

int task_rank(const Lookup& lookup) {
  for (const char* name : kTaskRankVariables)
    if (const auto text = lookup(name)) return parse_node(*text, name);
  throw UsageError(
      "agent: --node is not given, and neither OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK nor "
      "SLURM_PROCID is set");
}

std::string read_line(int fd, const std::string& source) {
  std::string line;
  char byte = 0;
  while (line.size() <= kMaxSecretBytes) {  // read no more than the line: the following bytes
                                            // belong to another reader
    const ssize_t count = ::read(fd, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw Error("cannot read the run's secret from {}: {}", source, system_reason(errno));
    if (count == 0 || byte == '\n') break;
    line.push_back(byte);
  }
  return line;
}

std::string read_secret_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) throw Error("--secret-file {}: {}", path, system_reason(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Error("--secret-file {}: not a file", path);
  if (status.st_uid != ::geteuid())
    throw Error("--secret-file {}: it belongs to user {}, expected {}", path, status.st_uid,
                ::geteuid());
  if ((status.st_mode & 077) != 0)
    throw Error("--secret-file {}: accessible to other users (mode {:03o}), expected 600", path,
                status.st_mode & 0777);
  std::string secret = read_line(file.get(), path);
  if (::unlink(path.c_str()) != 0)
    throw Error("--secret-file {} cannot be removed: {}", path, system_reason(errno));
  return secret;
}

std::string read_secret_variable(const std::string& name) {
  const auto value = read_variable(name);
  if (!value) throw Error("--secret-env {}: it is not set", shortened(name));
  ::unsetenv(name.c_str());
  return *value;
}

}  // namespace

int run_agent(const AgentOptions& options, const std::filesystem::path& zeroth_directory) {
  const HmacKey secret(consume_secret(options));
  // Ranks of several nodes have no input: the agents' input belongs to the process that started
  // them.
  const FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  boost::asio::io_context io;
  auto channel =
      connect_to_launcher(io, options.launcher, secret, options.connect_timeout, log_line);
  Agent agent(io, std::move(channel), secret, zeroth_directory);
  if (options.join) agent.log_waiting();
  return agent.run(options.join ? Message(*options.join) : Hello{ZEROTH_VERSION, options.node});
}

AgentOptions parse_agent_options(const std::vector<std::string>& arguments, const Lookup& lookup) {
  AgentOptions options;
  std::optional<int> node;
  int sources = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--secret-stdin") {
      options.secret_on_stdin = true;
      ++sources;
      continue;
    }
    const bool is_known = flag == "--launcher" || flag == "--node" || flag == "--secret-env" ||
                          flag == "--secret-file";
    if (!is_known) throw UsageError("agent: unknown flag '{}'", shortened(flag));
    if (i + 1 == arguments.size()) throw UsageError("agent: {} needs a value", flag);
    const std::string& value = arguments[++i];
    if (flag == "--launcher") options.launcher = value;
    if (flag == "--node") node = parse_node(value, flag);
    if (flag == "--secret-env") options.secret_variable = value;
    if (flag == "--secret-file") options.secret_file = value;
    if (flag.starts_with("--secret")) ++sources;
  }
  if (options.launcher.empty()) throw UsageError("agent: --launcher is missing");
  if (sources != 1)
    throw UsageError(
        "agent: exactly one of --secret-stdin, --secret-env and --secret-file is needed, not {}",
        sources);
  options.node = node ? *node : task_rank(lookup);
  return options;
}

std::string consume_secret(const AgentOptions& options) {
  if (!options.secret.empty()) return options.secret;
  const std::string secret = options.secret_on_stdin ? read_line(STDIN_FILENO, "standard input")
                             : !options.secret_file.empty()
                                 ? read_secret_file(options.secret_file)
                                 : read_secret_variable(options.secret_variable);
  if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes)
    throw Error("the run's secret has {} characters, expected {} to {}", secret.size(),
                kMinSecretBytes, kMaxSecretBytes);
  return secret;
}

}  // namespace zeroth::launcher
