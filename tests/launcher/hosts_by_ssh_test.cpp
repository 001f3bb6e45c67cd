// Hosts through a real sshd of the test's own: at a high port of 127.0.0.1 and 127.0.0.2, with keys
// that the test makes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::hosts_by_ssh_test {
namespace {

using boost::asio::ip::tcp;
using Words = std::vector<std::string>;

constexpr const char* kDaemon = "/usr/sbin/sshd";

bool succeeds(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

unsigned short free_port() {
  boost::asio::io_context io;
  return tcp::acceptor(io, {boost::asio::ip::address_v4::loopback(), 0}).local_endpoint().port();
}

class SshDaemon {
 public:
  SshDaemon() : port_(free_port()) {
    ::mkdir("/run/sshd", 0755);  // as Debian's service does: without it none starts
    for (const char* key : {"host", "user", "stranger"})
      REQUIRE(succeeds(fmt::format("ssh-keygen -q -t ed25519 -N '' -f {}", file(key))));
    std::ofstream(file("config")) << fmt::format(
        "Port {}\nListenAddress 127.0.0.1\nListenAddress 127.0.0.2\nHostKey {}\n"
        "AuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        port_, file("host"), file("user.pub"));
    for (const char* host : {"127.0.0.1", "127.0.0.2"})
      std::ofstream(file("known"), std::ios::app)
          << fmt::format("[{}]:{} {}", host, port_, read_text(file("host.pub")));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl(kDaemon, kDaemon, "-D", "-e", "-q", "-f", file("config").c_str(), nullptr);
      ::_exit(125);
    }
    const bool listens = eventually([this] {
      boost::asio::io_context io;
      boost::system::error_code error;
      tcp::socket(io).connect({boost::asio::ip::make_address("127.0.0.2"), port_}, error);
      return !error;
    });
    REQUIRE(listens);
  }
  ~SshDaemon() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  Environment ssh(const std::string& key = "user") const {
    return {{"HOSTS_SSH", fmt::format("ssh -p {} -o BatchMode=yes {}", port_, args(key))}};
  }
  // For ssh, beside the port.
  std::string args(const std::string& key = "user") const {
    return fmt::format(
        "-F /dev/null -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o "
        "UserKnownHostsFile={} -o LogLevel=ERROR",
        file(key), file("known"));
  }
  unsigned short port() const { return port_; }

 private:
  std::string file(const std::string& name) const { return (directory_.path() / name).string(); }

  TempFolder directory_;
  unsigned short port_;
  pid_t pid_ = -1;
};

bool there_is_none() {
  const bool none = ::access(kDaemon, X_OK) != 0 || ::geteuid() != 0 || !succeeds("ssh -V");
  if (none) MESSAGE("skipped: no sshd, or not root (Debian: apt-get install openssh-server)");
  return none;
}

Words on_hosts(const Words& mode) {
  Words words = {"--hosts", "127.0.0.1:2,127.0.0.2:2", "--", rank_program()};
  words.insert(words.end(), mode.begin(), mode.end());
  return words;
}

LaunchedProcess::Result run(const Words& words, const Environment& environment) {
  return LaunchedProcess(words, environment, -1, "tests/hosts_program").wait();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool none_alive(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_alive);
}

constexpr const char* kOneMachine =
    "zeroth: warning: hosts 127.0.0.1 and 127.0.0.2 are the same machine: their ranks share its "
    "GPUs and cores\n";

}  // namespace

TEST_CASE("ranks run on hosts that ssh reaches, and arguments arrive byte for byte") {
  if (there_is_none()) return;
  const SshDaemon daemon;
  const auto result = run(
      on_hosts({"args", "I am 6' tall", "\"translate English to Romanian: \"", "$HOME `id` \xff"}),
      daemon.ssh());
  CHECK(result.err == kOneMachine);
  CHECK(result.status == 0);
  std::string of_rank_3;  // lines of others may come between
  for (const std::string& line : lines_of(result.out))
    if (line.starts_with("[3] ")) of_rank_3 += line + "\n";
  CHECK(of_rank_3 ==
        "[3] <I am 6' tall>\n[3] <\"translate English to Romanian: \">\n[3] <$HOME `id` "
        "\xff>\n");
}

TEST_CASE("a rank that fails behind ssh ends all, and nothing is left") {
  if (there_is_none()) return;
  const SshDaemon daemon;
  LaunchedProcess job(on_hosts({"sleep"}), daemon.ssh(), -1, "tests/hosts_program");
  const auto pids = job.wait_for_pids(4);
  ::kill(pids[2], SIGKILL);
  const auto result = job.wait();
  CHECK(result.status == 137);
  CHECK(contains(result.err, "was killed by SIGKILL"));
  CHECK(none_alive(pids));
}

TEST_CASE("nothing survives behind ssh when the launcher is killed") {
  if (there_is_none()) return;
  const SshDaemon daemon;
  LaunchedProcess job(on_hosts({"stubborn"}), daemon.ssh(), -1, "tests/hosts_program");
  const auto pids = job.wait_for_pids(4);
  job.signal(SIGKILL);
  job.wait();
  CHECK(eventually([&] { return none_alive(pids); }));
}

TEST_CASE("hosts that ssh may not enter are told with its own words") {
  if (there_is_none()) return;
  const SshDaemon daemon;
  const auto result = run(on_hosts({"sleep"}), daemon.ssh("stranger"));
  CHECK(result.status == 1);
  CHECK(contains(result.err,
                 "error: 2 of 2 hosts cannot run their ranks:\n  host 127.0.0.1: ssh "
                 "ended with exit code 255: "));
  CHECK(contains(result.err, "Permission denied (publickey)"));
}

TEST_CASE("zeroth itself runs ranks on the hosts of a hostfile") {
  if (there_is_none()) return;
  const SshDaemon daemon;
  const TempFolder directory;
  directory.write("hosts", "127.0.0.1 slots=4\n127.0.0.2 slots=4\n");
  const auto zeroth = [&](const Words& flags, const Words& mode) {
    Words words = {"-H",
                   directory / "hosts",
                   "--launcher",
                   "ssh",
                   "--ssh_port",
                   std::to_string(daemon.port()),
                   "--no_bind_cores_to_rank",
                   "--launcher_args",
                   daemon.args()};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back(rank_program());
    words.insert(words.end(), mode.begin(), mode.end());
    return LaunchedProcess(words, {}, -1).wait();
  };
  const auto two = zeroth({"--num_gpus", "2"}, {"env", "RANK", "LOCAL_RANK", "WORLD_SIZE"});
  CHECK(two.status == 0);
  CHECK(two.err == kOneMachine);
  for (const char* line : {"[0] RANK=0", "[1] LOCAL_RANK=1", "[2] LOCAL_RANK=0", "[3] RANK=3",
                           "[3] LOCAL_RANK=1", "[3] WORLD_SIZE=4"})
    CHECK(contains(two.out, line));
  const auto some = zeroth({"-i", "127.0.0.1:1@127.0.0.2:0,3"}, {"env", "RANK", "CROSS_SIZE"});
  CHECK(some.status == 0);
  CHECK(contains(some.out, "[2] RANK=2"));
  CHECK(contains(some.out, "[0] CROSS_SIZE=2"));
  CHECK_FALSE(contains(some.out, "[3]"));
}

}  // namespace zeroth::launcher::hosts_by_ssh_test
