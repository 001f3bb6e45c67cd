#include "launcher/run/rank_process.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>

#include "launcher/machine/find_program.h"
#include "tests/launcher/launched_process.h"
#include "tests/support/child_process.h"

namespace zeroth::launcher::rank_process_test {
namespace {

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  return text;
}

RankProcess start(const std::vector<std::string>& mode, const RankSpec& spec = {}) {
  Program program{rank_program(), {"rank"}};
  program.command.insert(program.command.end(), mode.begin(), mode.end());
  return RankProcess::start(program, spec);
}

ExitStatus wait_for_ending(const RankProcess& process) {
  std::optional<ExitStatus> exit_status;
  REQUIRE(eventually([&] { return (exit_status = process.poll_exit()).has_value(); }));
  return *exit_status;
}

using std::chrono::milliseconds;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool all_stopped(const std::vector<pid_t>& pids) {
  return std::all_of(pids.begin(), pids.end(), [](pid_t pid) { return state_of(pid) == 'T'; });
}

bool none_stopped(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), [](pid_t pid) { return state_of(pid) == 'T'; });
}

}  // namespace

TEST_CASE("a rank sees the launcher's environment with its own on top") {
  ::setenv("ZEROTH_TEST_KEPT", "kept", 1);
  ::setenv("ZEROTH_TEST_SET", "old", 1);
  const RankSpec spec{0, 0, {{"ZEROTH_TEST_SET", "new = \"x\""}}, {}};
  const RankProcess process = start({"env", "ZEROTH_TEST_KEPT", "ZEROTH_TEST_SET"}, spec);
  CHECK(read_all(process.out.get()) == "ZEROTH_TEST_KEPT=kept\nZEROTH_TEST_SET=new = \"x\"\n");
  ::unsetenv("ZEROTH_TEST_KEPT");
  ::unsetenv("ZEROTH_TEST_SET");
}

TEST_CASE("endings are seen once they happen, and stay") {
  const RankProcess coded = start({"exit", "5"});
  CHECK(wait_for_ending(coded) == ExitStatus{false, 5});
  CHECK(coded.poll_exit() == ExitStatus{false, 5});
  CHECK(wait_for_ending(start({"raise", std::to_string(SIGUSR1)})) == ExitStatus{true, SIGUSR1});
  RankProcess sleeping = start({"sleep"});
  CHECK_FALSE(sleeping.poll_exit());
  sleeping.signal_group(SIGINT);
  CHECK(wait_for_ending(sleeping) == ExitStatus{true, SIGINT});
  sleeping.kill_and_reap();
  sleeping.kill_and_reap();
}

TEST_CASE("a signal is handled where it is caught or blocked, unless all are for a moment") {
  const auto handles = [](const std::vector<std::string>& mode, int signal) {
    const TempFolder directory;
    const RankSpec spec{0, 0, {{"PID_DIR", directory.path().string()}}, {}};
    const RankProcess process = start(mode, spec);
    REQUIRE(eventually([&] { return !std::filesystem::is_empty(directory.path()); }));
    return process.handles(signal);
  };
  CHECK(handles({"finish", "0"}, SIGTERM));
  CHECK_FALSE(handles({"finish", "0"}, SIGHUP));
  CHECK_FALSE(handles({"stubborn"}, SIGTERM));  // ignored
  CHECK(handles({"block", std::to_string(SIGHUP)}, SIGHUP));
  CHECK_FALSE(handles({"block", std::to_string(SIGHUP)}, SIGTERM));
  CHECK_FALSE(handles({"block"}, SIGHUP));
}

TEST_CASE("a rank that goes out of scope is gone") {
  const TempFolder directory;
  pid_t pid = 0;
  {
    const RankSpec spec{0, 0, {{"PID_DIR", directory.path().string()}}, {}};
    const RankProcess process = start({"stubborn"}, spec);
    REQUIRE(eventually([&] { return !std::filesystem::is_empty(directory.path()); }));
    pid = std::stoi(std::filesystem::directory_iterator(directory.path())->path().filename());
    CHECK(is_alive(pid));
  }
  CHECK_FALSE(is_alive(pid));
}

TEST_CASE("a rank that cannot start throws") {
  const std::vector<std::string> command = {"rank"};
  CHECK_THROWS_AS(RankProcess::start({"/no/such/file", command}, {}), ProgramError);
  CHECK_THROWS_AS(RankProcess::start({"/", command}, {}), ProgramError);
  const RankSpec unbindable{3, 3, {}, {8000}};
  CHECK_THROWS_WITH(RankProcess::start({rank_program(), command}, unbindable),
                    "rank 3 cannot be bound to its cores: Invalid argument; "
                    "--no_bind_cores_to_rank disables binding");
}

TEST_CASE("Ctrl-Z stops the ranks too, fg continues them, and what they had left to do they do") {
  // As the job of a shell; fg answers with how it ended, where bash's wait may with how it stopped.
  const std::string start = ZEROTH_BIN_DIR "/zeroth --num_gpus=2 --grace 4 " + rank_program();
  LaunchedProcess job({"--num_gpus=1", "/bin/bash", "-c",
                       "set -m; " + start +
                           " finish 2500 & job=$!; "
                           "while [ $(ls $PID_DIR | wc -l) != 2 ]; do sleep 0.05; done; "
                           "kill -TERM $job; sleep 0.3; kill -TSTP $job; sleep 5; "
                           "grep State /proc/$job/status; fg %1 >/dev/null; echo status $?"});
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  CHECK(eventually([&] { return all_stopped(pids); }));
  CHECK(eventually([&] { return none_stopped(pids); }));
  const auto result = job.wait();
  CAPTURE(result.out);
  CHECK(contains(result.out, "State:\tT (stopped)"));
  CHECK(contains(result.out, "[0] saved\n"));
  CHECK(contains(result.out, "[1] saved\n"));
  CHECK(contains(result.out, "status 143\n"));
  CHECK_FALSE(contains(result.err, "were killed"));
}

TEST_CASE("a job that nobody could continue is not stopped by SIGTSTP") {
  LaunchedProcess job({"--num_gpus=1", "/bin/sh", "-c",
                       "setsid " ZEROTH_BIN_DIR "/zeroth --num_gpus=1 " + rank_program() +
                           " polite & until [ $(ls $PID_DIR | wc -l) = 1 ]; do sleep 0.05; done; "
                           "kill -TSTP $!; sleep 0.5; kill $!; wait $!; echo status $?"});
  const auto result = job.wait();
  CHECK(result.out == "status 0\n");
}

TEST_CASE("ranks that somebody stops are named, and that they go on") {
  LaunchedProcess job({"--num_gpus=2", rank_program(), "polite"});
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
  job.wait_for_words(
      "zeroth: all ranks are suspended (SIGSTOP or a debugger): nothing happens until the job is "
      "resumed; to resume them: kill -CONT ");
  for (const pid_t pid : pids) ::kill(pid, SIGCONT);
  job.wait_for_words("zeroth: all ranks have resumed\n");
  ::kill(pids[0], SIGSTOP);
  job.wait_for_words(" is suspended (SIGSTOP or a debugger): the others will wait for it");
  job.signal(SIGTERM);
  CHECK(job.wait().status == 0);
}

TEST_CASE(
    "a job that is suspended as a whole, launcher and ranks, says nothing and loses nothing") {
  LaunchedProcess job({"--num_gpus=2", "--grace=3", rank_program(), "finish", "1000"});
  std::vector<pid_t> all = job.wait_for_pids(2);
  all.push_back(job.pid());
  job.signal(SIGTERM);
  std::this_thread::sleep_for(milliseconds(200));
  for (const pid_t pid : all) ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(4000));
  for (auto pid = all.rbegin(); pid != all.rend(); ++pid) ::kill(*pid, SIGCONT);
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(contains(result.out, "[0] saved\n"));
  CHECK(contains(result.out, "[1] saved\n"));
  CHECK_FALSE(contains(result.err, "were killed"));
  CHECK_FALSE(contains(result.err, "SIGSTOP"));
}

TEST_CASE("a guard that somebody kills is replaced, and the new one guards") {
  LaunchedProcess job({"--num_gpus=1", rank_program(), "brood", "sleep"});
  const std::vector<pid_t> pids = job.wait_for_pids(4);
  const auto guard = [&] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string status = read_text(entry.path() / "status");
      if (contains(status, "Name:\tzeroth-guard\n") &&
          contains(status, fmt::format("PPid:\t{}\n", job.pid())))
        return std::stoi(entry.path().filename().string());
    }
    return 0;
  };
  pid_t first = 0;
  REQUIRE(eventually([&] { return (first = guard()) > 0; }));
  ::kill(first, SIGKILL);
  CHECK(eventually([&] { return guard() > 0 && guard() != first; }));
  job.signal(SIGKILL);
  CHECK(job.wait().status == -SIGKILL);
  CHECK(eventually([&] { return std::none_of(pids.begin(), pids.end(), is_alive); }));
}

}  // namespace zeroth::launcher::rank_process_test
