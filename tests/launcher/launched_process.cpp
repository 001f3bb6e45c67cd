#include "tests/launcher/launched_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace zeroth::launcher {
namespace {

void redirect(int output, const std::filesystem::path& file, int fd) {
  const bool given = output >= 0;
  ::dup2(given ? output : ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), fd);
}

[[noreturn]] void become(std::vector<std::string> command, const Environment& environment) {
  ::signal(SIGHUP, SIG_DFL);  // also when the tests run under nohup
  ::setenv("DS_ACCELERATOR", "cpu", 1);
  ::unsetenv("OMP_NUM_THREADS");
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  ::_exit(125);
}

std::vector<std::string> started_with(const std::string& program,
                                      const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {ZEROTH_BIN_DIR "/" + program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

LaunchedProcess::LaunchedProcess(const std::vector<std::string>& arguments,
                                 const Environment& environment, int output,
                                 const std::string& program)
    : LaunchedProcess(Program{started_with(program, arguments)}, environment, output) {}

LaunchedProcess::LaunchedProcess(const Program& program, const Environment& environment, int output)
    : since_(std::chrono::steady_clock::now()) {
  const std::filesystem::path pids = directory_.path() / "pids";
  std::filesystem::create_directory(pids);
  Environment all = environment;
  all.emplace_back("PID_DIR", pids.string());
  pid_ = ::fork();
  if (pid_ != 0) return;
  redirect(output, directory_.path() / "out", STDOUT_FILENO);
  redirect(output, directory_.path() / "err", STDERR_FILENO);
  become(program.words, all);
}

LaunchedProcess::~LaunchedProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void LaunchedProcess::signal(int number) {
  since_ = std::chrono::steady_clock::now();
  ::kill(pid_, number);
}

std::vector<pid_t> LaunchedProcess::wait_for_pids(size_t count) const {
  std::vector<pid_t> pids;
  const bool all_there = eventually([&] {
    pids = noted_pids();
    return pids.size() == count;
  });
  if (!all_there) throw Error("{} processes noted their pids, expected {}", pids.size(), count);
  return pids;
}

std::vector<pid_t> LaunchedProcess::noted_pids() const {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path() / "pids"))
    pids.push_back(std::stoi(entry.path().filename().string()));
  return pids;
}

void LaunchedProcess::wait_for_words(const std::string& text) const {
  const auto said = [&] { return read_text(directory_.path() / "err"); };
  if (!eventually([&] { return said().find(text) != std::string::npos; }))
    throw Error("zeroth did not say \"{}\" but \"{}\"", text, said());
}

LaunchedProcess::Result LaunchedProcess::wait() {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }))
    throw Error("zeroth did not end");
  pid_ = -1;
  Result result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result.out = read_text(directory_.path() / "out");
  result.err = read_text(directory_.path() / "err");
  return result;
}

LaunchedProcess::Result run_zeroth(const std::vector<std::string>& arguments,
                                   const Environment& environment) {
  return LaunchedProcess(arguments, environment).wait();
}

LaunchedProcess::Result run_program(const std::vector<std::string>& words,
                                    const Environment& environment) {
  return LaunchedProcess(LaunchedProcess::Program{words}, environment).wait();
}

std::string rank_program() {
  return ZEROTH_BIN_DIR "/tests/rank_program";
}

bool is_alive(pid_t pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 3) != ") Z";
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace zeroth::launcher
