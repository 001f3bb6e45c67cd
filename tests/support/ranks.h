// Ranks as threads of this process, joined over an in-process store.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device_mesh.h"

namespace zeroth::testing {

// kNccl: over the ranks' GPUs, which are as many, whatever ZEROTH_TEST_DEVICE says.
enum class Transport { kSharedMemory, kGloo, kNccl };

struct RankOptions {
  Transport transport = Transport::kSharedMemory;
  std::chrono::milliseconds timeout{60'000};  // of a collective
  std::function<void(int rank)> before_joining = {};
  std::optional<comm::MeshShape> grid = {};  // else all ranks are on axis data
  // The machine of each rank, as they are told. Empty: one; or with ZEROTH_TEST_HOSTS=N, over
  // shared memory, N of them with equally many ranks, where there are so many.
  std::vector<std::string> nodes = {};
};

// The GPUs that tests use: all of the machine with ZEROTH_TEST_DEVICE=cuda, else none. The GPU
// library has to be in LD_PRELOAD, to be loaded before torch is used.
int gpu_count_of_tests();

// Where run_ranks() lets its ranks compute: on the GPUs in turn, or on the CPU where there are
// none, or where can_compute_on_gpus() is false.
torch::Device device_of_tests(int rank = 0);

// Ranks on a tensor axis wait for each other in their backward passes. Those that share a GPU share
// autograd's thread for it as well, where they would wait forever: each needs a GPU of its own.
bool can_compute_on_gpus(const comm::MeshShape& grid);

// For RankOptions: `count` ranks on so many machines, equally many on each, one after the other;
// empty for one machine.
std::vector<std::string> on_machines(int count, int machines);

// Has to be called before threads of a forked process compute: LibTorch makes its thread pool anew
// at the first use there, and a thread that comes meanwhile finds none ("Invalid thread pool!").
void renew_thread_pool();

// Calls fn on `count` ranks at once and waits for all; rethrows the first exception of any of them.
void run_ranks(int count, const std::function<void(std::shared_ptr<comm::DeviceMesh>)>& fn,
               const RankOptions& options = {});

}  // namespace zeroth::testing
