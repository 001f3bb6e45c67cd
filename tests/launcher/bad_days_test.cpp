// What happens to ranks and to what they started when a job goes wrong, from a user's side.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "launcher/run/local_ranks.h"
#include "tests/launcher/launched_process.h"
#include "tests/support/child_cgroup.h"
#include "tests/support/fake_system.h"

namespace zeroth::launcher::bad_days_test {
namespace {

using Words = std::vector<std::string>;
using std::chrono::milliseconds;

// A child, a child in a session of its own, a daemon, and the rank itself.
constexpr size_t kBrood = 4;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Words on_ranks(int count, const Words& mode) {
  Words command = {"--num_gpus", std::to_string(count), rank_program()};
  command.insert(command.end(), mode.begin(), mode.end());
  return command;
}

bool none_alive(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_alive);
}

Words in_cgroup(const ChildCgroup& group, const Words& arguments) {
  Words words = {"--num_gpus=1", "/bin/sh",
                 "-c",           "echo $$ >'" + group.processes().string() + "' && exec \"$@\"",
                 "sh",           ZEROTH_BIN_DIR "/zeroth"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

TEST_CASE("a rank that memory's end kills is told from one that somebody kills") {
  const ChildCgroup group(int64_t{256} << 20);
  if (!group.obstacle().empty()) {
    MESSAGE("skipped, a child control group cannot be made: " << group.obstacle());
    return;
  }
  const auto result = run_zeroth(in_cgroup(group, on_ranks(2, {"only", "1", "eat"})));
  CHECK(result.status == 137);
  CHECK(contains(
      result.err,
      "zeroth: rank 1 was killed by SIGKILL (out of memory: the kernel's out-of-memory "
      "killer ended 1 process of this control group; the limit of the group is 256 MiB; "));
  LaunchedProcess job(in_cgroup(group, on_ranks(1, {"sleep"})));
  ::kill(job.wait_for_pids(1)[0], SIGKILL);
  CHECK(contains(job.wait().err, "rank 0 was killed by SIGKILL (sent by a user or process, "));
}

TEST_CASE("the counter of a control group, not the signal alone, names the out-of-memory killer") {
  const FakeSystem system;
  system.make_unified("/job");
  system.write("sys/fs/cgroup/job/memory.events", "oom_kill 1\n");
  const std::string events = (system.root() / "sys/fs/cgroup/job/memory.events").string();
  const Program program{"/bin/sh", {"sh", "-c", "echo oom_kill 2 >'" + events + "'; kill -9 $$"}};
  const LocalRanksOptions options{.system_root = system.root()};
  const JobOutcome outcome = supervise(program, {RankSpec{}}, {}, options);
  CHECK(outcome.status == 137);
  CHECK(contains(outcome.message, "SIGKILL (out of memory: the kernel's out-of-memory killer "));
  const Program innocent{"/bin/sh", {"sh", "-c", "kill -9 $$"}};
  CHECK(contains(supervise(innocent, {RankSpec{}}, {}, options).message,
                 "SIGKILL (sent by a user or process, not by"));
}

TEST_CASE("a rank that fails because memory's end killed its helper says so") {
  const FakeSystem system;
  system.make_unified("/job");
  system.write("sys/fs/cgroup/job/memory.events", "oom_kill 0\n");
  const std::string events = (system.root() / "sys/fs/cgroup/job/memory.events").string();
  const Program program{"/bin/sh", {"sh", "-c", "echo oom_kill 1 >'" + events + "'; exit 4"}};
  const LocalRanksOptions options{.system_root = system.root()};
  const JobOutcome outcome = supervise(program, {RankSpec{}}, {}, options);
  CHECK(outcome.status == 4);
  CHECK(contains(outcome.message, "out-of-memory killer ended 1 process meanwhile"));
}

TEST_CASE("a stopped rank, for which another one waited in vain, is named and killed") {
  const std::string script =
      "[ $RANK = 1 ] && echo $$ >$PID_DIR/new && mv $PID_DIR/new $PID_DIR/one && kill -STOP $$\n"
      "until grep -qs '^State:.T' /proc/$(cat $PID_DIR/one 2>/dev/null)/status; do sleep 0.02; "
      "done\n"
      "echo 'waited too long' >&2; exit 1";
  const auto result = run_zeroth({"--num_gpus=2", "/bin/sh", "-c", script});
  CHECK(result.status == 1);
  CHECK(result.seconds < 50);  // and not the five minutes of a signal from outside
  CHECK(contains(result.err, "[0] waited too long\n"));
  // On a busy machine it is told before, too, that rank 1 is stopped.
  CHECK(result.err.ends_with(
      "zeroth: rank 0 ended with exit code 1\n"
      "zeroth: rank 1 was suspended (SIGSTOP or a debugger) when that happened: others may have "
      "waited for it\n"
      "zeroth: ranks that did not end by themselves were killed\n"));
}

TEST_CASE("a stopped rank is continued so that it can obey a signal") {
  LaunchedProcess job(on_ranks(2, {"finish", "100"}));
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  ::kill(pids[0], SIGSTOP);
  job.signal(SIGTERM);
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(result.seconds < 50);
  CHECK_FALSE(contains(result.err, "were killed"));
}

TEST_CASE("ranks that take their time to save after SIGTERM or SIGINT get it") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    CAPTURE(signal);
    LaunchedProcess job(on_ranks(2, {"finish", "4000"}));
    job.wait_for_pids(2);
    job.signal(signal);
    const auto result = job.wait();
    CHECK(result.status == 128 + signal);
    CHECK(result.seconds > 3.5);
    CHECK(contains(result.out, "[0] saved"));
    CHECK(contains(result.out, "[1] saved"));
    CHECK(contains(result.err, "ranks have 300 s to finish and save"));
    CHECK(contains(result.err, "zeroth: stopped by SIG"));
    CHECK_FALSE(contains(result.err, "were killed"));
  }
}

TEST_CASE("a signal that comes twice at once, as timeout(1) sends it, is one signal") {
  // A busy machine may show the launcher the second one so late that it counts: that says nothing.
  constexpr double kOneSignal = 0.25;
  bool reported = false;
  for (int attempt = 0; !reported; ++attempt) {
    REQUIRE(attempt < 20);
    LaunchedProcess job(on_ranks(1, {"finish", "500"}));
    job.wait_for_pids(1);
    job.signal(SIGTERM);
    std::this_thread::sleep_for(milliseconds(20));
    ::kill(job.pid(), SIGTERM);
    const auto result = job.wait();
    CHECK(result.status == 143);
    reported = contains(result.out, "saved");
    if (!reported) REQUIRE(result.seconds > kOneSignal);
  }
}

TEST_CASE("--grace ends ranks that do not finish") {
  Words words = on_ranks(2, {"stubborn"});
  words.insert(words.begin(), "--grace=1");
  LaunchedProcess job(words);
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  job.signal(SIGTERM);
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(result.seconds > 0.9);
  CHECK(result.seconds < 50);
  CHECK(contains(result.err, "were killed"));
  CHECK(none_alive(pids));
}

TEST_CASE("a rank that fails while it finishes is named, and nobody waits long for its peers") {
  const std::string script = "exec " + rank_program() +
                             " $([ $RANK = 1 ] && echo fail-late || "
                             "echo finish 60000)";
  LaunchedProcess job({"--num_gpus=2", "/bin/sh", "-c", script});
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  job.signal(SIGTERM);
  const auto result = job.wait();
  CHECK(result.status == 143);
  CHECK(result.seconds < 50);
  CHECK(contains(result.err, "stopped by SIGTERM\nzeroth: rank 1 ended with exit code 5"));
  CHECK(none_alive(pids));
}

TEST_CASE("what a rank started dies with the job, in whatever session: the rank is killed") {
  LaunchedProcess job(on_ranks(1, {"brood", "sleep"}));
  const std::vector<pid_t> pids = job.wait_for_pids(kBrood);
  const pid_t rank = *std::min_element(pids.begin(), pids.end());
  ::kill(rank, SIGKILL);
  CHECK(job.wait().status == 137);
  CHECK(none_alive(pids));
}

TEST_CASE("what a rank started dies with the job: the rank ends well, or badly") {
  for (const char* code : {"0", "3"}) {
    CAPTURE(code);
    LaunchedProcess job(on_ranks(1, {"brood", "exit", code}));
    const std::vector<pid_t> pids = job.wait_for_pids(kBrood - 1);
    CHECK(job.wait().status == std::stoi(code));
    CHECK(none_alive(pids));
  }
}

TEST_CASE("what a rank started dies with the job: the launcher gets SIGTERM") {
  LaunchedProcess job(on_ranks(2, {"brood", "sleep"}));
  const std::vector<pid_t> pids = job.wait_for_pids(2 * kBrood);
  job.signal(SIGTERM);
  CHECK(job.wait().status == 143);
  CHECK(none_alive(pids));
}

TEST_CASE("what a rank started dies with the job: the launcher gets SIGKILL") {
  LaunchedProcess job(on_ranks(2, {"brood", "sleep"}));
  const std::vector<pid_t> pids = job.wait_for_pids(2 * kBrood);
  job.signal(SIGKILL);
  CHECK(job.wait().status == -SIGKILL);
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("what a rank started in its own group dies with the rank, while others go on") {
  const std::string script = "[ $RANK = 1 ] && exec " + rank_program() + " sleep; " +
                             rank_program() +
                             " sleep & until [ $(ls $PID_DIR | wc -l) = 2 ]; do sleep 0.05; done";
  LaunchedProcess job({"--num_gpus=2", "/bin/sh", "-c", script});
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  CHECK(eventually([&] { return std::count_if(pids.begin(), pids.end(), is_alive) == 1; }));
  job.signal(SIGTERM);
  CHECK(job.wait().status == 143);
}

}  // namespace zeroth::launcher::bad_days_test
