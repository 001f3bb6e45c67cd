// Hosts as network namespaces: own addresses, own loopback, and links that can be cut.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/machine/file_descriptor.h"
#include "tests/launcher/launched_process.h"
#include "tests/support/listeners.h"

namespace zeroth::launcher::hosts_in_namespaces_test {
namespace {

using Words = std::vector<std::string>;

bool succeeds(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

// This process in a namespace of its own, and two hosts beside it: 10.213.1.2 and 10.213.2.2, which
// reach it at 10.213.1.1 and 10.213.2.1. All go with the process, whatever ends it.
class Network {
 public:
  Network() : before_(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (before_.get() < 0 || ::unshare(CLONE_NEWNET) != 0) return;
    is_there_ = succeeds("ip link set lo up");
    for (int host = 1; host <= 2 && is_there_; ++host) is_there_ = add(host);
    std::ofstream(enter_) << "#!/bin/sh\nexec nsenter -t $(cat " << directory_.path().string()
                          << "/$1) -n sh -c \"$2\"\n";
    ::chmod(enter_.c_str(), 0755);
  }
  ~Network() {
    for (const pid_t pid : namespace_pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    if (before_.get() >= 0) ::setns(before_.get(), CLONE_NEWNET);
  }

  bool is_there() const { return is_there_; }
  Environment environment() const { return {{"HOSTS_SSH", enter_}}; }
  void cut(int host) const { REQUIRE(succeeds(fmt::format("ip link set v{} down", host))); }

 private:
  bool add(int host) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    const FileDescriptor ready(ends[0]);
    FileDescriptor report(ends[1]);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::unshare(CLONE_NEWNET) != 0) ::_exit(1);
      report.close();
      while (true) ::pause();
    }
    namespace_pids_.push_back(pid);
    report.close();
    char byte = 0;
    [[maybe_unused]] const auto count = ::read(ready.get(), &byte, 1);
    std::ofstream(directory_.path() / fmt::format("10.213.{}.2", host)) << pid;
    return succeeds(
        fmt::format("ip link add v{0} type veth peer name e{0} && ip link set e{0} netns {1} && "
                    "ip addr add 10.213.{0}.1/24 dev v{0} && ip link set v{0} up && "
                    "nsenter -t {1} -n sh -c 'ip addr add 10.213.{0}.2/24 dev e{0} && ip link set "
                    "e{0} up && ip link set lo up && ip route add default via 10.213.{0}.1'",
                    host, pid));
  }

  TempFolder directory_;
  std::string enter_ = (directory_.path() / "enter").string();
  FileDescriptor before_;
  std::vector<pid_t> namespace_pids_;
  bool is_there_ = false;
};

bool lacks(const Network& network) {
  if (!network.is_there()) MESSAGE("skipped: no network namespaces here (root, ip, nsenter)");
  return !network.is_there();
}

Words on_hosts(const Words& options, const Words& mode) {
  Words words = {"--hosts", "10.213.1.2:2,10.213.2.2:2"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", rank_program()});
  words.insert(words.end(), mode.begin(), mode.end());
  return words;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool none_alive(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_alive);
}

}  // namespace

TEST_CASE(
    "hosts in namespaces reach the launcher at its addresses there, and the master is one of "
    "theirs") {
  const Network network;
  if (lacks(network)) return;
  const auto result = LaunchedProcess(on_hosts({}, {"env", "MASTER_ADDR", "CROSS_RANK"}),
                                      network.environment(), -1, "tests/hosts_program")
                          .wait();
  CHECK(result.err ==
        "zeroth: warning: hosts 10.213.1.2 and 10.213.2.2 are the same machine: their ranks share "
        "its GPUs and cores\n");
  CHECK(result.status == 0);
  for (const char* line : {"[0] MASTER_ADDR=10.213.1.2\n", "[3] MASTER_ADDR=10.213.1.2\n",
                           "[1] CROSS_RANK=0\n", "[2] CROSS_RANK=1\n"})
    CHECK(contains(result.out, line));
}

TEST_CASE(
    "the launcher listens at the addresses that hosts reach, and nowhere once all are there") {
  const Network network;
  if (lacks(network)) return;
  LaunchedProcess late(on_hosts({"--instead", "1", "--sh", "exec sleep 60"}, {"sleep"}),
                       network.environment(), -1, "tests/hosts_program");
  Words found;
  CHECK(eventually([&] {
    found = testing::listeners_of(std::to_string(late.pid()));
    return found.size() == 2;
  }));
  std::sort(found.begin(), found.end());
  REQUIRE(found.size() == 2);
  CHECK(found[0].starts_with("0101D50A:"));  // 10.213.1.1
  CHECK(found[1].starts_with("0102D50A:"));
  late.signal(SIGTERM);
  CHECK(late.wait().status == 128 + SIGTERM);
  LaunchedProcess job(on_hosts({}, {"polite"}), network.environment(), -1, "tests/hosts_program");
  const auto pids = job.wait_for_pids(4);
  CHECK(testing::listeners_of(std::to_string(job.pid())).empty());
  job.signal(SIGTERM);
  CHECK(job.wait().status == 0);
}

TEST_CASE("a link that is down for good loses its host, on both of its ends") {
  const Network network;
  if (lacks(network)) return;
  // The launcher waits for the agent's last words, though not for long.
  LaunchedProcess job(on_hosts({"--silence", "1500"}, {"stubborn"}), network.environment(), -1,
                      "tests/hosts_program");
  const auto pids = job.wait_for_pids(4);
  network.cut(2);
  const auto result = job.wait();
  CHECK(result.status == 1);
  CHECK(contains(result.err,
                 "zeroth: host 10.213.2.2 is lost: no heartbeat for 1.5 s; rank 2 ran there"));
  CHECK(
      contains(result.err, "10.213.2.2: zeroth agent: the launcher is lost: no heartbeat for 6 s"));
  CHECK(eventually([&] { return none_alive(pids); }));
}

}  // namespace zeroth::launcher::hosts_in_namespaces_test
