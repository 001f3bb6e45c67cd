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
#include <sstream>

#include "base/error.h"
#include "comm/bootstrap.h"
#include "comm/mesh.h"
#include "tests/launcher/launched.h"
#include "tests/support/listeners.h"
#include "tests/support/second_user.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Value of `name` in the environment of `pid`; empty: not set.
std::string variable_of(pid_t pid, const std::string& name) {
  std::istringstream environment(text_of(fmt::format("/proc/{}/environ", pid)));
  for (std::string entry; std::getline(environment, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return {};
}

// A run of two ranks that makes steps until it is told to end.
class EndlessRun {
 public:
  EndlessRun()
      : zeroth_({"--num_gpus", "2", "--timeout", "20", "finetune", "--model", bench_ / "model",
                 "--data", bench_ / "train.bin", "--seq-len", "16", "--global-batch", "2",
                 "--micro-batch", "1", "--steps", "1000000", "--metrics", bench_ / "m.jsonl"}) {
    REQUIRE(makes_steps());
    std::istringstream children(text_of(fmt::format("/proc/{0}/task/{0}/children", zeroth_.pid())));
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
  launcher::Launched& zeroth() { return zeroth_; }

 private:
  Workbench bench_;
  launcher::Launched zeroth_;
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
  env.meeting = meeting;
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

TEST_CASE("another user can neither read, join, hold up nor end a run") {
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
      ": Permission denied; without that variable ranks meet at MASTER_ADDR:MASTER_PORT"));
  CHECK(run.makes_steps());
  run.zeroth().signal(SIGTERM);
  CHECK(run.zeroth().wait().status == 143);
}

TEST_CASE("once ranks have met none of them holds what they met in, nor does a killed launcher") {
  EndlessRun run;
  const auto holds_memory = [](pid_t pid) {
    for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid)))
      if (fs::read_symlink(entry.path()).string().starts_with("/memfd:")) return true;
    return false;
  };
  CHECK(holds_memory(run.zeroth().pid()));
  for (const pid_t pid : run.ranks()) CHECK_FALSE(holds_memory(pid));
  run.zeroth().signal(SIGKILL);
  CHECK(run.zeroth().wait().status == -SIGKILL);
  for (const pid_t pid : run.all())
    CHECK(launcher::eventually([&] { return !launcher::is_alive(pid); }));
}

}  // namespace zeroth::trainer
