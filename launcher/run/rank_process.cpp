#include "launcher/run/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/machine/cpu.h"
#include "base/machine/process_limits.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/machine.h"

namespace zeroth::launcher {
namespace {

// Opens the rank's input. Only rank 0 may read the launcher's input, and not from a terminal, which
// would stop a background group.
FileDescriptor open_input(int rank, int input_fd) {
  if (input_fd >= 0 || (rank == 0 && ::isatty(STDIN_FILENO) == 0)) {
    const int copy = ::fcntl(input_fd >= 0 ? input_fd : STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (copy >= 0) return FileDescriptor(copy);
  }
  FileDescriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) throw Error("/dev/null cannot be opened: {}", system_reason(errno));
  return null;
}

// Returns whether the variable is one that an outer launcher set for its own ranks.
bool is_stale(std::string_view name) {
  return name == "ZEROTH_TTY" || name == "ZEROTH_COLUMNS" || name == "ZEROTH_SHARE_GPUS" ||
         name == "ZEROTH_MEETING";
}

std::vector<std::string> merged_environment(const RankSpec& spec) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(spec.env.begin(), spec.env.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced && !is_stale(name)) merged.emplace_back(text);
  }
  for (const auto& [name, value] : spec.env) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// ChildPlan holds all that the child needs, prepared before the fork: nothing is allocated after
// it.
struct ChildPlan {
  const char* file;
  char* const* arguments;
  char* const* environment;
  const std::vector<int>& cores;
  pid_t parent;
  int in, out, err, failure;
};

// StartFailure is an error between fork and exec. The child sends it through a pipe that a
// successful exec closes.
struct StartFailure {
  enum Step : int { kBind, kExecute } step;
  int error;
};

void restore_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become_rank(const ChildPlan& plan) {
  restore_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::raise(SIGKILL);  // the launcher died before prctl
  ::setpgid(0, 0);
  StartFailure failure{StartFailure::kBind, plan.cores.empty() ? 0 : set_affinity(plan.cores)};
  if (failure.error == 0) {
    ::dup2(plan.in, STDIN_FILENO);
    ::dup2(plan.out, STDOUT_FILENO);
    ::dup2(plan.err, STDERR_FILENO);
    ::execve(plan.file, plan.arguments, plan.environment);
    failure = {StartFailure::kExecute, errno};
  }
  [[maybe_unused]] const auto written = ::write(plan.failure, &failure, sizeof(failure));
  while (true) ::raise(SIGKILL);  // no destructor of the parent's objects may run here
}

void throw_if_failed(int failure_pipe, const Program& program, const RankSpec& spec) {
  StartFailure failure{};
  ssize_t count = 0;
  do {
    count = ::read(failure_pipe, &failure, sizeof(failure));
  } while (count < 0 && errno == EINTR);
  if (count != sizeof(failure)) return;
  if (failure.step == StartFailure::kBind)
    throw Error(
        "rank {} cannot be bound to its cores: {}; --no_bind_cores_to_rank disables binding",
        spec.rank, system_reason(failure.error));
  const int status = failure.error == ENOENT ? 127 : 126;
  throw ProgramError(status, fmt::format("{} cannot be executed: {}", program.file.string(),
                                         system_reason(failure.error)));
}

}  // namespace

Program make_program(const std::vector<std::string>& command,
                     const std::filesystem::path& zeroth_directory) {
  return {find_program(command.at(0), zeroth_directory, read_variable("PATH").value_or("")),
          command};
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("cannot create a pipe: {}", system_reason(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

RankProcess RankProcess::start(const Program& program, const RankSpec& spec, int input_fd) {
  std::vector<std::string> command = program.command;
  std::vector<std::string> environment = merged_environment(spec);
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  const FileDescriptor input = open_input(spec.rank, input_fd);
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe failure = make_pipe();
  const ChildPlan plan{program.file.c_str(), arguments.data(), variables.data(),
                       spec.cores,           ::getpid(),       input.get(),
                       out.write.get(),      err.write.get(),  failure.write.get()};
  const pid_t pid = ::fork();
  if (pid < 0) throw Error("rank {} cannot be started: {}", spec.rank, system_reason(errno));
  if (pid == 0) become_rank(plan);
  RankProcess process(pid, std::move(out.read), std::move(err.read));
  failure.write.close();
  throw_if_failed(failure.read.get(), program, spec);
  return process;
}

RankProcess::RankProcess(pid_t pid, FileDescriptor out_end, FileDescriptor err_end)
    : out(std::move(out_end)), err(std::move(err_end)), pid_(pid) {}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : out(std::move(other.out)), err(std::move(other.err)), pid_(std::exchange(other.pid_, -1)) {}

std::optional<ExitStatus> RankProcess::poll_exit() const {
  siginfo_t info{};
  const int result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (result != 0 || info.si_pid == 0) return std::nullopt;
  return ExitStatus{info.si_code != CLD_EXITED, info.si_status};
}

bool RankProcess::is_stopped() const {
  siginfo_t info{};
  const int result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT);
  return result == 0 && info.si_pid != 0;
}

bool RankProcess::handles(int signal) const {
  std::ifstream status(fmt::format("/proc/{}/status", pid_));
  const auto has = [](uint64_t mask, int number) { return ((mask >> (number - 1)) & 1) != 0; };
  for (std::string name, value; status >> name;) {
    if (name != "SigBlk:" && name != "SigCgt:") continue;
    status >> value;
    const uint64_t mask = std::strtoull(value.c_str(), nullptr, 16);
    // Shells and the C library block all signals while they start a process or a thread.
    const bool for_a_moment = name == "SigBlk:" && has(mask, SIGSEGV);
    if (has(mask, signal) && !for_a_moment) return true;
  }
  return false;
}

void RankProcess::signal_group(int signal) const {
  if (pid_ > 0) ::kill(-pid_, signal);
}

void RankProcess::kill_and_reap() {
  if (pid_ <= 0) return;
  signal_group(SIGKILL);
  ::kill(pid_, SIGKILL);  // it may have left its group
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace zeroth::launcher
