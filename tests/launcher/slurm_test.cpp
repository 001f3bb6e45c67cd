// A real step of Slurm: a controller and two nodes on this machine.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>

#include "launcher/machine/local_addresses.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::slurm_test {
namespace {

using Words = std::vector<std::string>;

// Why there can be none here; empty: there can.
std::string obstacle() {
  if (::geteuid() != 0) return "not root";
  for (const char* tool : {"slurmctld", "slurmd", "srun", "sinfo"})
    if (run_program({"sh", "-c", "command -v " + std::string(tool)}).status != 0)
      return fmt::format("{} is not installed", tool);
  return "";
}

class SlurmCluster {
 public:
  SlurmCluster() {
    std::array<char, 256> name{};
    REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
    std::string host = name.data();
    host = host.substr(0, host.find('.'));
    const std::string directory = directory_.path().string();
    std::filesystem::create_directory(directory_ / "state");
    const std::string conf = directory_.write(
        "slurm.conf",
        fmt::format("ClusterName=test\nSlurmctldHost={0}(127.0.0.1)\nSlurmctldPort={2}\n"
                    "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\n"
                    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
                    "SwitchType=switch/none\nReturnToService=2\nStateSaveLocation={1}/state\n"
                    "SlurmdSpoolDir={1}/spool-%n\nSlurmctldPidFile={1}/ctld.pid\n"
                    "SlurmdPidFile={1}/%n.pid\nJobAcctGatherType=jobacct_gather/none\n"
                    "AccountingStorageType=accounting_storage/none\n"
                    "NodeName=n1 NodeHostname={0} NodeAddr=127.0.0.1 Port={3} State=UNKNOWN\n"
                    "NodeName=n2 NodeHostname={0} NodeAddr=127.0.0.1 Port={4} State=UNKNOWN\n"
                    "PartitionName=main Nodes=ALL Default=YES State=UP\n",
                    host, directory, resolve_master_port({}), resolve_master_port({}),
                    resolve_master_port({})));
    environment_ = {{"SLURM_CONF", conf}};
    start({"slurmctld", "-D", "-f", conf});
    for (const char* node : {"n1", "n2"}) start({"slurmd", "-D", "-f", conf, "-N", node});
  }

  // No process is left behind: nodes first, so that they can say goodbye.
  ~SlurmCluster() {
    while (!daemons_.empty()) {
      daemons_.back()->signal(SIGTERM);
      try {
        daemons_.back()->wait();
      } catch (const std::exception&) {  // the destructor kills it
      }
      daemons_.pop_back();
    }
  }

  bool is_up() const {
    return eventually([&] {
      const Words states =
          lines_of(run_program({"sinfo", "-h", "-N", "-o", "%t"}, environment_).out);
      return states == Words{"idle", "idle"};
    });
  }

  // With a task on each node.
  LaunchedProcess::Result srun(const Words& command) const {
    Words words = {"srun", "--nodes=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--time=1"};
    words.insert(words.end(), command.begin(), command.end());
    return run_program(words, environment_);
  }

 private:
  void start(const Words& words) {
    daemons_.push_back(
        std::make_unique<LaunchedProcess>(LaunchedProcess::Program{words}, environment_));
  }

  TempFolder directory_;
  Environment environment_;
  std::vector<std::unique_ptr<LaunchedProcess>> daemons_;
};

}  // namespace

TEST_CASE("a zeroth on each node of Slurm knows its node, and a rank that fails ends all") {
  if (const std::string reason = obstacle(); !reason.empty()) {
    MESSAGE("not run: no cluster of Slurm: ", reason);
    return;
  }
  auto cluster = std::make_unique<SlurmCluster>();
  // Another program may take a port between its choice and its use.
  for (int again = 0; again < 2 && !cluster->is_up(); ++again)
    cluster = std::make_unique<SlurmCluster>();
  REQUIRE(cluster->is_up());
  const int port = resolve_master_port({});
  const auto zeroth = [&](const Words& program) {
    Words words = {ZEROTH_BIN_DIR "/zeroth", "--master_addr=127.0.0.1",
                   fmt::format("--master_port={}", port), "--num_gpus=2", rank_program()};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  };
  const auto result = cluster->srun(zeroth({"env", "CROSS_RANK"}));
  CHECK(result.status == 0);
  Words lines = lines_of(result.out);
  std::sort(lines.begin(), lines.end());
  CHECK(lines ==
        Words{"[0] CROSS_RANK=0", "[1] CROSS_RANK=0", "[2] CROSS_RANK=1", "[3] CROSS_RANK=1"});
  for (const int node : {0, 1})
    CHECK(result.err.find(fmt::format("zeroth: node {} of 2 (Slurm), master 127.0.0.1:{}\n", node,
                                      port)) != std::string::npos);
  // On a busy machine srun may kill the step before it has read the last lines of its tasks.
  bool is_reported = false;
  for (int again = 0; again < 3 && !is_reported; ++again) {
    const auto failed = cluster->srun(zeroth({"only", "3", "exit", "7"}));
    CHECK(failed.status == 143);  // of the other node, which is the highest
    is_reported = failed.err.find("zeroth: rank 3 ended with exit code 7") != std::string::npos;
  }
  CHECK(is_reported);
}

}  // namespace zeroth::launcher::slurm_test
