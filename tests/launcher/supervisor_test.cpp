#include "launcher/run/local_ranks.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::supervisor_test {
namespace {

using Words = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Words on_ranks(int count, const Words& mode) {
  Words command = {"--num_gpus", std::to_string(count), rank_program()};
  command.insert(command.end(), mode.begin(), mode.end());
  return command;
}

// Both outputs of this process go to the file while this lives.
class Redirected {
 public:
  explicit Redirected(const std::filesystem::path& file)
      : out_(::dup(STDOUT_FILENO)), err_(::dup(STDERR_FILENO)) {
    const FileDescriptor to(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    ::dup2(to.get(), STDOUT_FILENO);
    ::dup2(to.get(), STDERR_FILENO);
  }
  ~Redirected() {
    ::dup2(out_.get(), STDOUT_FILENO);
    ::dup2(err_.get(), STDERR_FILENO);
  }

 private:
  FileDescriptor out_, err_;
};

bool none_alive(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_alive);
}

}  // namespace

TEST_CASE("a rank that exits with 3 ends the others, and the launcher with 3") {
  const auto result = run_zeroth(on_ranks(3, {"only", "1", "exit", "3"}));
  CHECK(result.status == 3);
  CHECK(result.seconds < 30);  // the others would sleep for a minute
  CHECK(
      contains(result.err, "zeroth: rank 1 ended with exit code 3; its last lines:\n  | leaving"));
}

TEST_CASE("a rank's last words are not repeated right below themselves") {
  const std::string script = "echo 'bad flag' >&2; exit 1";
  const auto alone = run_zeroth({"--num_gpus=1", "/bin/sh", "-c", script});
  CHECK(alone.err == "bad flag\nzeroth: rank 0 ended with exit code 1\n");
  const std::string first = "[ $RANK = 1 ] && sleep 60; " + script;
  const auto pair = run_zeroth({"--num_gpus=2", "--no_bind_cores_to_rank", "/bin/sh", "-c", first});
  CHECK(pair.err == "[0] bad flag\nzeroth: rank 0 ended with exit code 1\n");
}

TEST_CASE("a rank's last words are repeated when others spoke since, or they went elsewhere") {
  const TempFolder directory;
  const std::string script =
      "trap 'echo over >&2; exit 1' TERM; [ $RANK = 1 ] && { : > \"$TRAPS\"; sleep 60 & wait; }; "
      "until [ -e \"$TRAPS\" ]; do sleep 0.01; done; echo 'bad flag' >&2; exit 1";
  const auto pair = run_zeroth({"--num_gpus=2", "--no_bind_cores_to_rank", "/bin/sh", "-c", script},
                               {{"TRAPS", (directory.path() / "traps").string()}});
  CHECK(pair.err ==
        "[0] bad flag\n[1] over\nzeroth: rank 0 ended with exit code 1; its last lines:\n"
        "  | bad flag\n");
  const auto elsewhere = run_zeroth({"--num_gpus=1", "/bin/sh", "-c", "echo said; exit 1"});
  CHECK(elsewhere.err == "zeroth: rank 0 ended with exit code 1; its last lines:\n  | said\n");
}

TEST_CASE("a killed rank is reported by number and signal name") {
  LaunchedProcess job(on_ranks(2, {"sleep"}));
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  ::kill(pids[0], SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 137);
  CHECK((contains(result.err, "zeroth: rank 0 was killed by SIGKILL") ||
         contains(result.err, "zeroth: rank 1 was killed by SIGKILL")));
  CHECK(none_alive(pids));
}

TEST_CASE("a rank's own signal gives 128 + signal, with what it said last") {
  const auto result = run_zeroth(on_ranks(2, {"only", "1", "raise", std::to_string(SIGABRT)}));
  CHECK(result.status == 128 + SIGABRT);
  CHECK(contains(result.err, "rank 1 was killed by SIGABRT; its last lines:\n  | about to die"));
}

TEST_CASE("a rank that ignores SIGTERM is killed when its 3 seconds are over") {
  LaunchedProcess job(on_ranks(2, {"stubborn"}));
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  job.signal(0);  // only starts the clock
  ::kill(pids[1], SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 137);
  CHECK(result.seconds > 2.5);
  CHECK(result.seconds < 30);
  CHECK(none_alive(pids));
  CHECK(contains(result.err, "\nzeroth: ranks that did not end by themselves were killed"));
}

TEST_CASE("a rank that ends with 0 leaves the others alone") {
  LaunchedProcess job(on_ranks(3, {"except", "2", "env", "RANK"}));
  const std::vector<pid_t> pids = job.wait_for_pids(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(is_alive(pids[0]));
  ::kill(pids[0], SIGTERM);
  CHECK(job.wait().status == 143);
}

TEST_CASE("SIGTERM and SIGINT to the launcher leave no process") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    CAPTURE(signal);
    LaunchedProcess job(on_ranks(2, {"sleep"}));
    const std::vector<pid_t> pids = job.wait_for_pids(2);
    job.signal(signal);
    const auto result = job.wait();
    CHECK(result.status == 128 + signal);
    CHECK(result.seconds < 30);
    CHECK(none_alive(pids));
  }
}

TEST_CASE("ranks get the signal that came, and SIGTERM where they do nothing about SIGHUP") {
  const std::string script =
      "trap 'echo said TERM; exit 143' TERM; $TRAP echo waits >&2; while :; do sleep 0.02; done";
  for (const auto& [trap, said] :
       {std::pair{"trap 'echo said HUP; exit 129' HUP;", "said HUP"}, std::pair{"", "said TERM"},
        std::pair{"trap '' HUP;", "said TERM"}}) {
    CAPTURE(trap);
    std::string text = script;
    text.replace(text.find("$TRAP"), 5, trap);
    LaunchedProcess job({"--num_gpus=2", "sh", "-c", text});
    job.wait_for_words("[0] waits");
    job.wait_for_words("[1] waits");
    job.signal(SIGHUP);
    const auto result = job.wait();
    CHECK(result.status == 129);
    CHECK(contains(result.out, std::string("[0] ") + said));
    CHECK(contains(result.out, std::string("[1] ") + said));
    CHECK(contains(result.err, "zeroth: SIGHUP: ranks have "));
    CHECK(contains(result.err, "zeroth: stopped by SIGHUP\n"));
  }
}

TEST_CASE("ranks that end well on SIGTERM make the launcher end well") {
  LaunchedProcess job(on_ranks(2, {"polite"}));
  job.wait_for_pids(2);
  job.signal(SIGTERM);
  const auto result = job.wait();
  CHECK(result.status == 0);
  CHECK_FALSE(contains(result.err, "stopped"));
}

TEST_CASE("a second signal kills ranks that ignore the first") {
  LaunchedProcess job(on_ranks(2, {"stubborn"}));
  const std::vector<pid_t> pids = job.wait_for_pids(2);
  job.signal(SIGINT);
  job.wait_for_words("SIGINT: ranks have");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // sooner it would be the first one
  CHECK(is_alive(pids[0]));
  job.signal(SIGINT);
  const auto result = job.wait();
  CHECK(result.status == 130);
  CHECK(result.seconds < 30);
  CHECK(contains(result.err, "stopped by SIGINT"));
  CHECK(none_alive(pids));
}

TEST_CASE("ranks that outstay the grace after a signal are killed") {
  const TempFolder pids;
  JobRunnerOptions options;
  options.job.signal_grace = std::chrono::milliseconds(300);
  const std::jthread sender([&] {
    eventually([&] { return !std::filesystem::is_empty(pids.path()); });  // it runs
    ::kill(::getpid(), SIGTERM);
  });
  RankSpec rank;
  rank.env.emplace_back("PID_DIR", pids.path().string());
  const auto start = std::chrono::steady_clock::now();
  const JobOutcome outcome = supervise({rank_program(), {"rank", "stubborn"}}, {rank}, options);
  CHECK(outcome.status == 143);
  CHECK(contains(outcome.message, "were killed"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("a rank log on a full disk is given up with a warning, the job goes on") {
  const TempFolder directory;
  JobRunnerOptions options;
  options.rank_logs = {::open("/dev/full", O_WRONLY | O_CLOEXEC)};
  REQUIRE(options.rank_logs[0] >= 0);
  const Program program{rank_program(), {"rank", "text", "one\\ntwo\\n"}};
  const Redirected output(directory.path() / "output");
  CHECK(supervise(program, {RankSpec{}}, options).status == 0);
  CHECK(read_text(directory.path() / "output") ==
        "one\nzeroth: warning: the log of rank 0 ends here: No space left on device\ntwo\n");
  ::close(options.rank_logs[0]);
}

TEST_CASE("no rank survives the SIGKILL of the launcher") {
  LaunchedProcess job(on_ranks(3, {"stubborn"}));
  const std::vector<pid_t> pids = job.wait_for_pids(3);
  job.signal(SIGKILL);
  CHECK(job.wait().status == -SIGKILL);
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("what a rank started is gone with it, at the end of the job") {
  LaunchedProcess failing({"--num_gpus=1", rank_program(), "parent"});
  const std::vector<pid_t> pids = failing.wait_for_pids(2);
  ::kill(std::min(pids[0], pids[1]), SIGKILL);
  const auto result = failing.wait();
  CHECK(result.status == 137);
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("a job starts and ends in a moment") {
  run_zeroth({rank_program(), "env", "RANK"});
  double fastest = 1;
  for (int i = 0; i < 5; ++i)
    fastest = std::min(fastest, run_zeroth({rank_program(), "env", "RANK"}).seconds);
  MESSAGE("one rank, start to end: " << fastest << " s");
  CHECK(fastest < 0.5);
}

}  // namespace zeroth::launcher::supervisor_test
