#include "engine/start.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "tests/support/child_process.h"

namespace zeroth::engine::start_test {
namespace {

// A configuration file for as long as it lives.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("zeroth_start_{}.json", getpid())) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a file and an environment become a configuration and a mesh") {
  const ConfigFile file(R"({"train_batch_size": 6, "zero_optimization": {"stage": 2}})");
  const Start run = start(file.path(), comm::RankEnv{}, {});
  CHECK(run.config.batch.micro_batch_size == 6);
  CHECK(run.config.zero.stage == 2);
  CHECK(run.mesh->rank() == 0);
  CHECK(run.mesh->world_size() == 1);
  CHECK_FALSE(run.notes.empty());  // fp32 and AdamW, as the file chose nothing
}

TEST_CASE("a program computes with as many threads as OMP_NUM_THREADS says") {
  const ConfigFile file(R"({"train_batch_size": 6})");
  const int before = at::get_num_threads();
  comm::RankEnv env;
  env.num_threads = 3;
  start(file.path(), env, {});
  CHECK(at::get_num_threads() == 3);
  at::set_num_threads(before);
}

TEST_CASE("ranks that split layers are neighbours") {
  configs::Config config;
  CHECK(grid_shape(config, 4) == comm::MeshShape::data_parallel(4));
  config.tensor_parallel.size = 2;
  const comm::MeshLayout grid(grid_shape(config, 4));
  CHECK(grid.shape().str() == "data 2 x tensor 2");
  CHECK(grid.along({comm::MeshDim::kTp}).part_of(3) == std::vector<int>{2, 3});
}

TEST_CASE("what the file leaves open comes from the program") {
  const ConfigFile file(R"({"train_micro_batch_size_per_gpu": "auto",
                            "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}},
                            "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})");
  StartOptions options{.flags = {}, .hidden_size = 32, .total_steps = 70};
  options.flags.micro_batch = 3;
  const Start run = start(file.path(), comm::RankEnv{}, options);
  CHECK(run.config.batch.train_batch_size == 3);
  CHECK(run.config.scheduler.total_num_steps == 70);
  CHECK(run.config.zero.reduce_bucket_elements == 32 * 32);
  CHECK_THROWS_AS(start(file.path(), comm::RankEnv{}, {}), Error);
}

TEST_CASE("a wrong configuration is told before the ranks are connected") {
  const ConfigFile file(R"({"train_batch_size": 5, "zero_optimisation": {}})");
  comm::RankEnv env;  // of a second rank that nobody waits for
  env.rank = 1;
  env.world_size = 2;
  env.master_port = 1;
  CHECK_THROWS_WITH_AS(start(file.path(), env, {}), doctest::Contains("zero_optimization"), Error);
}

TEST_CASE("a program's start opens its streams, outlives its readers and explains memory faults") {
  const ConfigFile file(R"({"train_batch_size": 6})");
  const ChildResult result = in_child([&file] {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) ::unsetenv(name);
    ::close(STDIN_FILENO);
    start(file.path());
    struct sigaction pipe {};
    struct sigaction fault {};
    ::sigaction(SIGPIPE, nullptr, &pipe);
    ::sigaction(SIGBUS, nullptr, &fault);
    const bool ready = ::fcntl(STDIN_FILENO, F_GETFD) >= 0 && pipe.sa_handler == SIG_IGN &&
                       (fault.sa_flags & SA_SIGINFO) != 0;
    return ready ? 0 : 1;
  });
  CHECK(result.status == 0);
}

}  // namespace zeroth::engine::start_test
