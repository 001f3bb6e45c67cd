#include "comm/device_mesh.h"

#include <ATen/ops/add.h>
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/bootstrap/rank_env.h"
#include "comm/cpu_collectives.h"
#include "device/gpu.h"
#include "tests/support/ranks.h"

namespace zeroth::comm::device_mesh_test {
namespace {

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

std::string mapped_files() {
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  return text.str();
}

RankEnv env_of(int rank, int world_size, int port) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_size = world_size;
  env.master_port = port;
  env.accelerator = "cpu";
  env.timeout = std::chrono::seconds(20);
  return env;
}

}  // namespace

TEST_CASE("ranks find each other at the master's address, and those of their machine themselves") {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // two ranks in one process, see run_ranks
  struct Row {
    int reported_local_size;
    std::vector<std::optional<std::string>> host_ids;
    int local_size;
    std::string nodes;  // empty: this machine alone
  };
  // What a launcher believes to be two machines may be one.
  for (const Row& row : {Row{2, {{}, {}}, 2, ""}, Row{1, {{}, {}}, 2, ""},
                         Row{2, {"left", "right"}, 1, "left (rank 0), right (rank 1)"},
                         Row{1, {"here", "here"}, 2, ""}}) {
    const int port = free_port();
    double sums[2] = {0, 0};
    const auto join = [&](int rank) {
      RankEnv env = env_of(rank, 2, port);
      env.local_size = row.reported_local_size;
      env.has_local_size = true;
      env.host_id = row.host_ids[static_cast<size_t>(rank)];
      const auto mesh = make_mesh(env);
      CHECK(mesh->rank() == rank);
      CHECK(mesh->world_size() == 2);
      CHECK(mesh->local_size() == row.local_size);
      CHECK(mesh->notes().empty());
      if (row.nodes.empty()) {
        CHECK(mesh->nodes().size() == 1);
      } else {
        CHECK(describe_nodes(mesh->nodes()) == row.nodes);
      }
      const torch::Tensor tensor = torch::full({1}, rank + 1.0);
      mesh->world().all_reduce(tensor).wait();
      sums[rank] = tensor.item<double>();
    };
    std::thread other(join, 1);
    join(0);
    other.join();
    CHECK(sums[0] == 3);
    CHECK(sums[1] == 3);
  }
}

TEST_CASE("a rank whose master does not answer says which and where") {
  const int port = free_port();
  RankEnv env = env_of(1, 2, port);
  env.timeout = std::chrono::seconds(1);
  std::string message;
  try {
    make_mesh(env);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.starts_with(fmt::format(
      "rank 1 of 2: cannot reach the store at 127.0.0.1:{}: nothing is listening there: timed "
      "out after 1",
      port)));
}

TEST_CASE(
    "loading the device of a CPU run loads nothing; asking for a GPU without one is an error") {
  RankEnv env = env_of(0, 1, 1);
  CHECK_NOTHROW(load_device(env));
  env.accelerator = "cuda";
  CHECK_THROWS_WITH_AS(load_device(env), doctest::Contains("no GPU support in this build"), Error);
}

TEST_CASE("a run on the CPU maps no CUDA library beyond what libtorch_cpu names") {
  const auto mesh = make_mesh(env_of(0, 1, 1));
  CHECK(mesh->device().is_cpu());
  CHECK(at::add(torch::ones({2}), 1).sum().item<double>() == 4);
  const std::string maps = mapped_files();
  CHECK(maps.find("libtorch_cpu") != std::string::npos);
  for (const char* library :
       {"libtorch_cuda", "libc10_cuda", "libzeroth_gpu", "libcublas", "libcudnn", "libnccl"}) {
    CAPTURE(library);
    CHECK(maps.find(library) == std::string::npos);
  }
}

TEST_CASE("without the GPU library beside the program the error says how to get it") {
  // Test programs lie in bin/tests: the library is not among the folders that are searched from
  // there.
  CHECK_THROWS_WITH_AS(device::load_gpu(), doctest::Contains("no GPU support in this build"),
                       Error);
}

TEST_CASE("a driver without a usable GPU is refused, unless the GPUs are hidden") {
  struct OldDriver final : device::Gpu {
    int device_count() const override { return devices; }
    device::GpuDriver driver() const override { return {"too old", 12040, 13000}; }
    int compute_capability(int) const override { return 0; }
    void select_device(int) override {}
    std::string pin(std::span<std::byte>) override { return ""; }
    void unpin(std::span<std::byte>) noexcept override {}
    int devices = 0;
  } gpu;
  RankEnv env;
  env.rank = 3;
  for (const auto& accelerator :
       {std::optional<std::string>(), std::optional<std::string>("cuda")}) {
    env.accelerator = accelerator;
    env.hides_gpus = false;
    CHECK_THROWS_WITH_AS(device_type(env, gpu), doctest::Contains("The driver supports CUDA 12.4"),
                         Error);
    CHECK_THROWS_WITH_AS(device_type(env, gpu), doctest::Contains("rank 3: no GPU is visible"),
                         Error);
    env.hides_gpus = true;
    if (!accelerator) CHECK((device_type(env, gpu) == torch::kCPU));
  }
  CHECK_THROWS_WITH_AS(device_type(env, gpu), doctest::Contains("see CUDA_VISIBLE_DEVICES"), Error);
  env.accelerator = "cpu";
  CHECK((device_type(env) == torch::kCPU));
  env.accelerator.reset();
  gpu.devices = 1;
  CHECK((device_type(env, gpu) == torch::kCUDA));
}

}  // namespace zeroth::comm::device_mesh_test
