// The resolved offload: which parts of a rank's training state rest outside its device, and how the
// file behind NVMe is read and written.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace zeroth::configs {

enum class OffloadDevice {
  kNone,  // where it is computed with
  kCpu,   // host memory
  kNvme   // a file
};

struct OffloadOptimizerConfig {
  // Where fp32 masters and optimizer states rest between updates, at every stage.
  OffloadDevice device = OffloadDevice::kNone;
  // kNvme: the folder that receives one file per rank.
  std::string nvme_path = {};
  // Host memory that a GPU copies from or to is page-locked.
  bool pin_memory = true;
  // kNvme: tiles under way at a time, those read ahead, updated and written back together; at least
  // 1 + pipeline_read + pipeline_write.
  int64_t buffer_count = 4;
  // kNvme: tiles are read ahead of their update; written while the next one is updated. Changes no
  // result.
  bool pipeline_read = true;
  bool pipeline_write = true;
  // Share of the elements, in [0, 1], that is kept at `device`; the first units in forward order
  // stay on the device that computes and are updated there.
  double ratio = 1.0;
  enum class UpdateDevice { kAuto, kCpu, kGpu };
  // Who computes the update of what rests on the host or in a file. kGpu streams states through the
  // GPU; kAuto measures both ways when training starts. On a CPU run all mean kCpu.
  UpdateDevice step = UpdateDevice::kAuto;
};

// OffloadParamConfig::buffer_size_elements: as many as the model needs.
inline constexpr int64_t kBufferSizeAsNeeded = std::numeric_limits<int64_t>::max();

// Stage 3 only.
struct OffloadParamConfig {
  // Where the shards of parameters rest between uses.
  OffloadDevice device = OffloadDevice::kNone;
  std::string nvme_path = {};
  bool pin_memory = true;
  // kNvme: shards of units under way at a time (read ahead, gathered, written back); at least 2.
  int64_t buffer_count = 5;
  // kNvme: elements that a buffer holds; at least those of the largest shard, and no more are taken
  // than it has.
  int64_t buffer_size_elements = kBufferSizeAsNeeded;
  // kNvme: each rank keeps this many elements in host memory all the time, whole units in forward
  // order.
  int64_t max_in_cpu_elements = 1'000'000'000;
};

// How files are read and written.
struct AioConfig {
  // A transfer is cut into pieces of this many bytes; a multiple of 4096.
  int64_t block_size = 1 << 20;
  // Pieces under way at a time.
  int64_t queue_depth = 32;
  // Where io_uring is refused: threads, each with one piece under way.
  int64_t threads = 8;
};

}  // namespace zeroth::configs
