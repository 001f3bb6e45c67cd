// The resolved offload configuration: which parts of a rank's training state are stored outside its
// device, and how NVMe swap files are read and written.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace zeroth::configs {

// OffloadDevice is the storage of offloaded state, with DeepSpeed's names.
enum class OffloadDevice {
  kNone,  // on the device that computes
  kCpu,   // CPU memory
  kNvme   // a file
};

struct OffloadOptimizerConfig {
  // Storage of fp32 masters and optimizer states between updates, at every stage.
  OffloadDevice device = OffloadDevice::kNone;
  // kNvme: the directory in which each rank creates one file.
  std::string nvme_path = {};
  // Page-locks the CPU memory that a GPU copies from or to.
  bool pin_memory = true;
  // kNvme: shard chunks in flight at a time, including those that are prefetched, updated and
  // written back; at least 1 + pipeline_read + pipeline_write.
  int64_t buffer_count = 4;
  // kNvme: shard chunks are prefetched before their update, and written while the next one is
  // updated. Changes no result.
  bool pipeline_read = true;
  bool pipeline_write = true;
  // Fraction of the elements, in [0, 1], that is stored on `device`; the first units in forward
  // order stay on the device that computes and are updated there.
  double ratio = 1.0;
  enum class UpdateDevice { kAuto, kCpu, kGpu };
  // Device that updates state in CPU memory or in a file. kGpu streams states through the GPU;
  // kAuto measures both when training starts. On a CPU run all values mean kCpu.
  UpdateDevice step = UpdateDevice::kAuto;

  // Returns the directory of the files; empty: no files.
  std::string file_directory() const { return device == OffloadDevice::kNvme ? nvme_path : ""; }
};

// Value of OffloadParamConfig::buffer_size_elements that means as many as the model needs.
inline constexpr int64_t kBufferSizeAsNeeded = std::numeric_limits<int64_t>::max();

// OffloadParamConfig applies to stage 3 only.
struct OffloadParamConfig {
  // Storage of the shards of parameters between uses.
  OffloadDevice device = OffloadDevice::kNone;
  std::string nvme_path = {};
  bool pin_memory = true;
  // kNvme: shards of units in flight at a time (prefetched, gathered, written back); at least 2.
  int64_t buffer_count = 5;
  // kNvme: maximum elements of a buffer; at least those of the largest shard, and no more than
  // those are allocated.
  int64_t buffer_size_elements = kBufferSizeAsNeeded;
  // kNvme: elements that each rank keeps in CPU memory permanently, as full units in forward order.
  int64_t max_in_cpu_elements = 1'000'000'000;

  std::string file_directory() const { return device == OffloadDevice::kNvme ? nvme_path : ""; }
};

// AioConfig configures file I/O.
struct AioConfig {
  // Bytes of one I/O request, into which a transfer is split; a multiple of 4096.
  int64_t block_size = 1 << 20;
  // Maximum I/O requests in flight.
  int64_t queue_depth = 32;
  // Worker threads if io_uring is not available, each with one request in flight.
  int64_t threads = 8;
};

}  // namespace zeroth::configs
