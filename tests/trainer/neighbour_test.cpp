// What another user of the machine can do to a run that `zeroth` started: nothing.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "comm/bootstrap/rank_env.h"
#include "comm/device_mesh.h"
#include "tests/launcher/launched_process.h"
#include "tests/support/listeners.h"
#include "tests/support/second_user.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::neighbour_test {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Value of `name` in the environment of `pid`; empty: not set.
std::string variable_of(pid_t pid, const std::string& name) {
  std::istringstream environment(read_text(fmt::format("/proc/{}/environ", pid)));
  for (std::string entry; std::getline(environment, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return {};
}

std::vector<std::string> split_words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// A run of two ranks that makes steps until it is told to end.
class EndlessRun {
 public:
  explicit EndlessRun(const launcher::Environment& environment = {})
      : zeroth_(split_words(fmt::format(
                    "--num_gpus 2 --timeout 60 --enable_each_rank_log {0}logs finetune --model "
                    "{0}model --data {0}train.bin --seq-len 16 --global-batch 2 --micro-batch 1 "
                    "--steps 1000000 --metrics {0}m.jsonl --output {0}out --deepspeed {1}",
                    directory().string(), configured().string())),
                environment) {
    REQUIRE(makes_steps());
    std::istringstream children(
        read_text(fmt::format("/proc/{0}/task/{0}/children", zeroth_.pid())));
    for (pid_t pid = 0; children >> pid;) {
      all_.push_back(pid);
      if (!variable_of(pid, "RANK").empty()) ranks_.push_back(pid);
    }
    REQUIRE(ranks_.size() == 2);
    all_.push_back(zeroth_.pid());
  }

  // Three more than there are.
  bool makes_steps() const {
    const size_t before = bench_.read("m.jsonl").size();
    return launcher::eventually([&] { return bench_.read("m.jsonl").size() > before + 900; });
  }

  const std::vector<pid_t>& all() const { return all_; }  // launcher and guard, too
  const std::vector<pid_t>& ranks() const { return ranks_; }
  launcher::LaunchedProcess& zeroth() { return zeroth_; }
  fs::path directory() const { return bench_ / ""; }  // in which it writes all its files

 private:
  // A file with all that makes a run tell more.
  fs::path configured() const {
    bench_.write("ds.json", fmt::format(R"({{"dump_state": true, "wall_clock_breakdown": true,
      "comms_logger": {{"enabled": true}}, "csv_monitor": {{"enabled": true, "output_path": "{0}"}},
      "tensorboard": {{"enabled": true, "output_path": "{0}"}}}})",
                                        (bench_ / "monitors").string()));
    return bench_ / "ds.json";
  }

  Workbench bench_;
  launcher::LaunchedProcess zeroth_;
  std::vector<pid_t> all_;
  std::vector<pid_t> ranks_;
};

// What the calling user may do to process `pid`, in words; empty: nothing.
std::string doors_of(pid_t pid) {
  std::string open;
  const auto note = [&](const char* what, bool may) {
    if (may) open += fmt::format(" {} of {}", what, pid);
  };
  const auto opens = [&](const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
  };
  const std::string process = fmt::format("/proc/{}/", pid);
  for (const char* file : {"environ", "mem", "maps"}) note(file, opens(process + file, O_RDONLY));
  for (int fd = 0; fd < 64; ++fd)
    note("descriptor", opens(fmt::format("{}fd/{}", process, fd), O_RDONLY));
  for (const char* list : {"fd", "map_files"}) {
    std::error_code error;
    const fs::directory_iterator entries(process + list, error);
    note(list, !error);
  }
  note("trace", ::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0);
  for (const int signal : {SIGTERM, SIGSTOP, SIGKILL}) note("signal", ::kill(pid, signal) == 0);
  return open;
}

// What comes of it when the calling user joins as rank 1.
std::string join(const std::string& meeting) {
  comm::RankEnv env;
  env.rank = env.local_rank = 1;
  env.world_size = env.local_size = 2;
  env.bootstrap_ticket = meeting;
  env.accelerator = "cpu";
  env.timeout = std::chrono::seconds(1);
  comm::make_mesh(env);
  return "joined";
}

}  // namespace

TEST_CASE("no process of a run on one host listens at any port") {
  EndlessRun run;
  for (const pid_t pid : run.all()) {
    CAPTURE(pid);
    CHECK(testing::listeners_of(std::to_string(pid)).empty());
  }
  run.zeroth().signal(SIGTERM);
  CHECK(run.zeroth().wait().status == 143);
}

TEST_CASE("the secret of a run is in no output and no file of it, and on no command line") {
  const std::string secret = "a battery of horses in a stable";
  for (const char* shared_memory : {"1", "0"}) {
    CAPTURE(shared_memory);
    EndlessRun run({{"ZEROTH_SECRET", secret}, {"ZEROTH_SHARED_MEMORY", shared_memory}});
    for (const pid_t pid : run.ranks()) CHECK(variable_of(pid, "ZEROTH_SECRET") == secret);
    for (const pid_t pid : run.all()) {
      const std::string line = read_text(fmt::format("/proc/{}/cmdline", pid));
      CHECK_FALSE(line.empty());
      CHECK_FALSE(has(line, secret));
    }
    run.zeroth().signal(SIGTERM);
    const auto result = run.zeroth().wait();
    CHECK(result.status == 143);
    CHECK(has(result.out, "dump_state"));
    CHECK_FALSE(has(result.out + result.err, secret));
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(run.directory())) {
      if (!entry.is_regular_file()) continue;
      ++files;
      CHECK_MESSAGE(!has(read_text(entry.path()), secret), entry.path());
    }
    CHECK(files > 10);  // logs, metrics, page, monitors and model
  }
}

TEST_CASE("another user can neither read, join, hold up nor end a run" * in_neighbours) {
  if (!may_become_nobody()) return;
  EndlessRun run;
  const std::string meeting = variable_of(run.ranks()[0], "ZEROTH_MEETING");
  REQUIRE_FALSE(meeting.empty());
  const Nobody stranger([&] {
    std::string open;
    for (const pid_t pid : run.all()) open += doors_of(pid);
    return "open:" + open;
  });
  CHECK(stranger.said() == "open:");
  const Nobody third_rank([&] { return join(meeting); });
  CHECK(third_rank.said().ends_with(
      ": Permission denied; without that variable ranks connect at MASTER_ADDR:MASTER_PORT"));
  CHECK(run.makes_steps());
  run.zeroth().signal(SIGTERM);
  CHECK(run.zeroth().wait().status == 143);
}

TEST_CASE("once ranks have met none of them holds what they met in, nor does a killed launcher") {
  EndlessRun run;
  const auto holds_memory = [](pid_t pid) {
    for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
      std::error_code closed;  // a file of its work that it has just read
      if (fs::read_symlink(entry.path(), closed).string().starts_with("/memfd:")) return true;
    }
    return false;
  };
  CHECK(holds_memory(run.zeroth().pid()));
  for (const pid_t pid : run.ranks()) CHECK_FALSE(holds_memory(pid));
  run.zeroth().signal(SIGKILL);
  CHECK(run.zeroth().wait().status == -SIGKILL);
  for (const pid_t pid : run.all())
    CHECK(launcher::eventually([&] { return !launcher::is_alive(pid); }));
}

}  // namespace zeroth::trainer::neighbour_test
