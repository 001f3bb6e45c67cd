#include "comm/bootstrap/rank_env.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/run_secret.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::comm::rank_env_test {
namespace {

// The environment holds exactly these of the variables that matter, for as long as it lives.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const std::string& name : names()) {
      if (const char* value = std::getenv(name.c_str())) saved_[name] = value;
      unsetenv(name.c_str());
    }
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const std::string& name : names()) unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static std::vector<std::string> names() {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string name(*entry, std::strcspn(*entry, "="));
      for (const char* scheduler : {"SLURM_", "OMPI_", "PMI_", "MPI_", "PET_"})
        if (name.starts_with(scheduler)) names.push_back(name);
    }
    names.insert(names.end(), {"RANK",
                               "WORLD_SIZE",
                               "LOCAL_RANK",
                               "LOCAL_SIZE",
                               "LOCAL_WORLD_SIZE",
                               "MASTER_ADDR",
                               "MASTER_PORT",
                               "DS_ACCELERATOR",
                               "CUDA_VISIBLE_DEVICES",
                               "DEEPSPEED_TIMEOUT",
                               "OMP_NUM_THREADS",
                               "TORCHELASTIC_USE_AGENT_STORE",
                               "TORCHELASTIC_RESTART_COUNT",
                               "TERM",
                               "ZEROTH_TTY",
                               "ZEROTH_COLUMNS",
                               "ZEROTH_LAUNCH_TIME",
                               "ZEROTH_MEETING",
                               "ZEROTH_SECRET",
                               "ZEROTH_SECRET_FILE",
                               "ZEROTH_SHARED_MEMORY",
                               "ZEROTH_SHARE_GPUS",
                               "ZEROTH_TIMEOUT",
                               "ZEROTH_HOST_ID",
                               "GLOO_SOCKET_IFNAME",
                               "NCCL_SOCKET_IFNAME",
                               "NCCL_MULTI_RANK_GPU_ENABLE",
                               "ACCELERATE_USE_CPU",
                               "ACCELERATE_MIXED_PRECISION",
                               "ACCELERATE_USE_DEEPSPEED",
                               "ACCELERATE_DEEPSPEED_CONFIG_FILE",
                               "ACCELERATE_USE_FSDP",
                               "ACCELERATE_USE_MEGATRON_LM"});
    return names;
  }

  std::map<std::string, std::string> saved_;
};

std::string refusal(const std::string& path) {
  try {
    read_secret_file(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "it was read";
}

}  // namespace

TEST_CASE("without a launcher the world is one rank") {
  const Environment environment({});
  const RankEnv env = RankEnv::from_environment();
  CHECK(env.rank == 0);
  CHECK(env.world_size == 1);
  CHECK(env.timeout == std::chrono::minutes(10));
  CHECK_FALSE(env.num_threads.has_value());
}

// As accelerate 1.15 sets them.
TEST_CASE("where accelerate has started one process instead of several, the user is told") {
  const Environment environment({{"ACCELERATE_USE_CPU", "True"},
                                 {"ACCELERATE_MIXED_PRECISION", "no"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "29500"}});
  const RankEnv env = RankEnv::from_environment();
  CHECK(env.world_size == 1);
  CHECK(env.accelerator == "cpu");
  REQUIRE(env.warnings.size() == 1);
  CHECK(env.warnings[0].starts_with("accelerate launch was asked for several processes"));
}

TEST_CASE("where accelerate has started torchrun, its ranks are ranks") {
  const Environment environment({{"ACCELERATE_USE_CPU", "False"},
                                 {"ACCELERATE_MIXED_PRECISION", "no"},
                                 {"RANK", "1"},
                                 {"WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "29500"}});
  const RankEnv env = RankEnv::from_environment();
  CHECK(env.rank == 1);
  CHECK_FALSE(env.accelerator);
  CHECK(env.warnings.empty());
}

TEST_CASE("what accelerate says of precision and sharding is not ignored in silence") {
  const Environment environment({{"ACCELERATE_MIXED_PRECISION", "bf16"},
                                 {"ACCELERATE_USE_DEEPSPEED", "true"},
                                 {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "ds.json"},
                                 {"ACCELERATE_USE_FSDP", "true"}});
  const auto warnings = RankEnv::from_environment().warnings;
  REQUIRE(warnings.size() == 3);
  CHECK(warnings[0].starts_with("accelerate's --mixed_precision bf16 is not read: give --bf16"));
  CHECK(warnings[1].ends_with("are not read: give --deepspeed ds.json"));
  CHECK(warnings[2].starts_with("ACCELERATE_USE_FSDP is not read"));
}

TEST_CASE("torchrun's and Open MPI's variables are understood") {
  {
    const Environment environment({{"RANK", "3"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "10.0.0.1"},
                                   {"MASTER_PORT", "1234"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                   {"TORCHELASTIC_RESTART_COUNT", "3"},
                                   {"ZEROTH_MEETING", "of a launcher around it"},
                                   {"DEEPSPEED_TIMEOUT", "2"}});
    const RankEnv env = RankEnv::from_environment();
    CHECK(env.rank == 3);
    CHECK(env.local_rank == 1);
    CHECK(env.local_size == 2);
    CHECK(env.master_port == 1234);
    CHECK(env.agent_store);
    CHECK(env.agent_restart_counts);
    CHECK(env.attempt.index == 3);
    CHECK_FALSE(env.bootstrap_ticket);
    CHECK(env.timeout == std::chrono::minutes(2));
  }
  const Environment environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_SIZE", "2"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  const RankEnv env = RankEnv::from_environment();
  CHECK(env.rank == 1);
  CHECK(env.world_size == 2);
  CHECK(env.master_addr == "127.0.0.1");
}

TEST_CASE("a rank of Slurm needs no other variables, nor does a machine that is named") {
  const Environment environment({{"SLURM_PROCID", "3"},
                                 {"SLURM_LOCALID", "1"},
                                 {"SLURM_NODEID", "1"},
                                 {"SLURM_JOB_ID", "12"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_STEP_NUM_TASKS", "4"},
                                 {"SLURM_STEP_NODELIST", "n[1-2]"},
                                 {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                 {"ZEROTH_HOST_ID", "left"},
                                 {"GLOO_SOCKET_IFNAME", "eth1"}});
  const RankEnv env = RankEnv::from_environment();
  CHECK(env.rank == 3);
  CHECK(env.world_size == 4);
  CHECK(env.local_rank == 1);
  CHECK(env.local_size == 2);
  CHECK(env.has_local_size);
  CHECK(env.master_addr == "n1");
  CHECK(env.master_port == 15012);
  CHECK(env.host_id == "left");
  CHECK(env.interface == "eth1");
}

TEST_CASE("a time limit in seconds wins over one in minutes") {
  const Environment environment({{"DEEPSPEED_TIMEOUT", "2"}, {"ZEROTH_TIMEOUT", "7"}});
  CHECK(RankEnv::from_environment().timeout == std::chrono::seconds(7));
}

TEST_CASE("a time limit that means never is longer than any run, in nanoseconds too") {
  const Environment environment(
      std::map<std::string, std::string>{{"DEEPSPEED_TIMEOUT", "2147483647"}});
  const std::chrono::nanoseconds timeout = RankEnv::from_environment().timeout;
  CHECK(timeout > std::chrono::hours(24 * 365));
}

TEST_CASE("ranks may share GPUs, through NCCL only where its own variable says so") {
  {
    const Environment environment(std::map<std::string, std::string>{{"ZEROTH_SHARE_GPUS", "1"}});
    CHECK(RankEnv::from_environment().share_gpus);
    CHECK_FALSE(RankEnv::from_environment().nccl_shares_gpus);
  }
  const Environment environment(
      std::map<std::string, std::string>{{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}});
  CHECK_FALSE(RankEnv::from_environment().share_gpus);
  CHECK(RankEnv::from_environment().nccl_shares_gpus);
}

TEST_CASE("where ranks meet, and their secret, come from the environment") {
  {
    const Environment environment({});
    const RankEnv env = RankEnv::from_environment();
    CHECK_FALSE(env.bootstrap_ticket);
    CHECK(env.secret.empty());
    CHECK(env.shared_memory);
  }
  const Environment environment({{"ZEROTH_MEETING", "kernel:1:2:3"},
                                 {"ZEROTH_SECRET", "correct horse battery"},
                                 {"ZEROTH_SHARED_MEMORY", "0"}});
  const RankEnv env = RankEnv::from_environment();
  CHECK(env.bootstrap_ticket == "kernel:1:2:3");
  CHECK(env.secret == "correct horse battery");
  CHECK_FALSE(env.shared_memory);
}

TEST_CASE("CUDA_VISIBLE_DEVICES hides all GPUs where its first device is none") {
  const auto hides = [](const std::map<std::string, std::string>& values) {
    const Environment environment(values);
    return RankEnv::from_environment().hides_gpus;
  };
  CHECK_FALSE(hides({}));
  for (const char* some : {"0", "3,1", "GPU-8932f937", "MIG-4", "0,-1"})
    CHECK_FALSE(hides({{"CUDA_VISIBLE_DEVICES", some}}));
  for (const char* none : {"", "-1", "-1,0", "NoDevFiles"})
    CHECK(hides({{"CUDA_VISIBLE_DEVICES", none}}));
}

TEST_CASE("a bad value names the variable and what it holds") {
  const auto message = [](const std::map<std::string, std::string>& values) {
    const Environment environment(values);
    CHECK_THROWS_AS(RankEnv::from_environment(), Error);
    try {
      RankEnv::from_environment();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message({{"RANK", "x1"}}) == "environment variable RANK=x1 is not a number of at least 0");
  CHECK(message({{"WORLD_SIZE", "0"}}) ==
        "environment variable WORLD_SIZE=0 is not a number of at least 1");
  CHECK(message({{"MASTER_PORT", "70000"}}) ==
        "environment variable MASTER_PORT=70000 is not a number of at most 65535");
  CHECK(message({{"WORLD_SIZE", "2"}}) ==
        "environment variable WORLD_SIZE=2 is set, but RANK is not");
  CHECK(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "environment variable RANK=2 must be below WORLD_SIZE=2");
  CHECK(message({{"DS_ACCELERATOR", "tpu"}}) ==
        "environment variable DS_ACCELERATOR=tpu is neither cpu nor cuda");
  CHECK(message({{"ZEROTH_SECRET", "short"}}) ==
        "environment variable ZEROTH_SECRET: a secret of 5 characters, expected at least 16");
  CHECK(message({{"ZEROTH_SECRET", "short"}, {"ZEROTH_SECRET_FILE", "/x"}}) ==
        "environment variables ZEROTH_SECRET and ZEROTH_SECRET_FILE: only one may be set");
  CHECK(message({{"ZEROTH_SHARED_MEMORY", "no"}}) ==
        "environment variable ZEROTH_SHARED_MEMORY=no is neither 0 nor 1");
}

TEST_CASE("a secret is what its file holds, without the end of the line") {
  const TempFolder directory;
  const std::string path = directory.path() / "secret";
  std::ofstream(path) << "correct horse battery\r\n";
  ::chmod(path.c_str(), 0600);
  CHECK(read_secret_file(path) == "correct horse battery");
}

TEST_CASE("a secret that others may read, or that is no file, is refused") {
  const TempFolder directory;
  const std::string path = directory.path() / "secret";
  CHECK(refusal(path) == "ZEROTH_SECRET_FILE=" + path + ": No such file or directory");
  std::ofstream(path) << "correct horse battery";
  ::chmod(path.c_str(), 0640);
  CHECK(refusal(path) ==
        "ZEROTH_SECRET_FILE=" + path + ": other users can access it (mode 640); chmod 600");
  CHECK(refusal(directory.path()).ends_with(": not a file"));
  const std::string fifo = directory.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(refusal(fifo).ends_with(": not a file"));
}

TEST_CASE("a secret in another user's file is refused" * in_neighbours) {
  if (!may_become_nobody()) return;
  const TempFolder directory;
  const std::string path = directory.path() / "secret";
  std::ofstream(path) << "correct horse battery";
  ::chmod(path.c_str(), 0600);
  REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0);
  CHECK(refusal(path).ends_with(": it belongs to user 65534, expected 0"));
}

}  // namespace zeroth::comm::rank_env_test
