#include "launcher/run/suspend.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tests/launcher/launched.h"
#include "tests/support/child_process.h"

namespace zeroth::launcher {
namespace {

using Words = std::vector<std::string>;
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

// zeroth as the job of a shell, as at a terminal; `while_it_runs` has its number in $job.
Words as_job(const std::string& command, const std::string& while_it_runs) {
  return {"--num_gpus=1", "/bin/bash", "-c",
          "set -m; " ZEROTH_BIN_DIR "/zeroth " + command + " & job=$!; " + while_it_runs +
              "; wait -f $job; echo status $?"};
}

}  // namespace

TEST_CASE("Ctrl-Z stops the ranks too, fg continues them, and what they had left to do they do") {
  Launched job(as_job("--num_gpus=2 --grace 4 " + rank_program() + " finish 2500",
                      "while [ $(ls $PID_DIR | wc -l) != 2 ]; do sleep 0.05; done; "
                      "kill -TERM $job; sleep 0.3; kill -TSTP $job; sleep 5; "
                      "grep State /proc/$job/status; kill -CONT $job"));
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  CHECK(eventually([&] { return all_stopped(pids); }));
  CHECK(eventually([&] { return none_stopped(pids); }));
  const auto result = job.wait();
  CHECK(contains(result.out, "State:\tT (stopped)"));
  CHECK(contains(result.out, "[0] saved\n"));
  CHECK(contains(result.out, "[1] saved\n"));
  CHECK(contains(result.out, "status 143\n"));
  CHECK_FALSE(contains(result.err, "were killed"));
}

TEST_CASE("a job that nobody could continue is not stopped by SIGTSTP") {
  Launched job({"--num_gpus=1", "/bin/sh", "-c",
                "setsid " ZEROTH_BIN_DIR "/zeroth --num_gpus=1 " + rank_program() +
                    " polite & until [ $(ls $PID_DIR | wc -l) = 1 ]; do sleep 0.05; done; "
                    "kill -TSTP $!; sleep 0.5; kill $!; wait $!; echo status $?"});
  const auto result = job.wait();
  CHECK(result.out == "status 0\n");
}

TEST_CASE("ranks that somebody stops are named, and that they go on") {
  Launched job({"--num_gpus=2", rank_program(), "polite"});
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
  job.wait_for_words(
      "zeroth: all ranks are stopped (SIGSTOP or a debugger): nothing happens until somebody "
      "continues the job; to let them go on: kill -CONT ");
  for (const pid_t pid : pids) ::kill(pid, SIGCONT);
  job.wait_for_words("zeroth: all ranks go on\n");
  ::kill(pids[0], SIGSTOP);
  job.wait_for_words(" is stopped (SIGSTOP or a debugger): the others will wait for it");
  job.signal(SIGTERM);
  CHECK(job.wait().status == 0);
}

TEST_CASE(
    "a job that is suspended as a whole, launcher and ranks, says nothing and loses nothing") {
  Launched job({"--num_gpus=2", "--grace=3", rank_program(), "finish", "1000"});
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
  Launched job({"--num_gpus=1", rank_program(), "brood", "sleep"});
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
  const pid_t first = guard();
  REQUIRE(first > 0);
  ::kill(first, SIGKILL);
  CHECK(eventually([&] { return guard() > 0 && guard() != first; }));
  job.signal(SIGKILL);
  CHECK(job.wait().status == -SIGKILL);
  CHECK(eventually([&] { return std::none_of(pids.begin(), pids.end(), is_alive); }));
}

}  // namespace zeroth::launcher
