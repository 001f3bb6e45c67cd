#include "launcher/backends/launch_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

// Returns the read end of a pipe that contains `text`, which must fit into it.
FileDescriptor input_with(const std::string& text) {
  Pipe pipe = make_pipe();
  ZEROTH_CHECK(text.size() <= 4096, "an input of {} bytes", text.size());
  if (::write(pipe.write.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error("cannot write the input of a process: {}", system_reason(errno));
  return std::move(pipe.read);
}

}  // namespace

// LaunchProcess receives its own output.
struct LaunchProcesses::LaunchProcess final : LineSink {
  explicit LaunchProcess(LaunchProcesses& launch_processes) : owner(launch_processes) {}

  void write(std::string_view text, LineEnd /*end*/) override {
    if (text.ends_with('\r')) text.remove_suffix(1);  // ssh ends its lines with it
    if (text.empty()) return;
    last_line = shortened(text, 400);
    owner.handlers_.on_line(fmt::format("{}: {}", host.empty() ? name : host, printable(text)));
  }
  bool is_full() const override { return false; }
  void when_empty(std::function<void()> callback) override { callback(); }

  LaunchProcesses& owner;
  std::string name;  // of the program
  std::vector<int> hosts;
  std::string host;  // the name, if there is a single host
  std::optional<RankProcess> rank_process;
  std::unique_ptr<RankStream> out;
  std::unique_ptr<RankStream> err;
  std::string last_line;
  bool ended = false;
};

LaunchProcesses::LaunchProcesses(boost::asio::io_context& io, std::vector<std::string> hosts,
                                 std::filesystem::path zeroth_directory, LaunchHandlers handlers)
    : io_(io),
      hosts_(std::move(hosts)),
      zeroth_directory_(std::move(zeroth_directory)),
      handlers_(std::move(handlers)),
      children_(io, SIGCHLD),
      limit_(io) {
  wait_for_children();
}

LaunchProcesses::~LaunchProcesses() {
  for (const auto& process : processes_)
    if (process->rank_process) process->rank_process->kill_and_reap();
}

void LaunchProcesses::start(const AgentCommand& command) {
  auto process = std::make_unique<LaunchProcess>(*this);
  process->name = std::filesystem::path(command.argv.at(0)).filename();
  process->hosts = command.hosts;
  if (command.hosts.size() == 1) process->host = hosts_.at(static_cast<size_t>(command.hosts[0]));
  const Program program = make_program(command.argv, zeroth_directory_);
  const FileDescriptor input = input_with(command.input);
  RankSpec spec;
  spec.env = command.env;
  process->rank_process.emplace(RankProcess::start(program, spec, input.get()));
  const auto open = [&](FileDescriptor& source) {
    auto stream = std::make_unique<RankStream>(io_, std::move(source), *process);
    stream->start([] {});
    return stream;
  };
  process->out = open(process->rank_process->out);
  process->err = open(process->rank_process->err);
  processes_.push_back(std::move(process));
}

void LaunchProcesses::wait_for_children() {
  children_.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    poll_children();
    wait_for_children();
  });
}

void LaunchProcesses::poll_children() {
  for (size_t i = 0; i < processes_.size(); ++i) {  // a callback may start more
    LaunchProcess& process = *processes_[i];
    if (process.ended) continue;
    const auto exit_status = process.rank_process->poll_exit();
    if (!exit_status) continue;
    process.ended = true;
    for (RankStream* stream : {process.out.get(), process.err.get()}) stream->drain();
    process.rank_process->kill_and_reap();
    const std::string last = process.last_line.empty() ? "" : ": " + process.last_line;
    handlers_.on_end(process.hosts, exit_status->failed(),
                     fmt::format("{} {}{}", process.name, describe(*exit_status), last));
  }
  // A run may start thousands of processes.
  std::erase_if(processes_, [](const auto& process) { return process->ended; });
  if (!when_ended_ || !processes_.empty()) return;
  limit_.cancel();
  std::exchange(when_ended_, nullptr)();
}

void LaunchProcesses::when_ended(std::chrono::milliseconds limit, std::function<void()> callback) {
  when_ended_ = std::move(callback);
  limit_.start(limit, [this] {
    for (const auto& process : processes_)
      if (!process->ended) process->rank_process->signal_group(SIGKILL);
  });
  poll_children();
}

}  // namespace zeroth::launcher
