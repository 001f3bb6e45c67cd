// Report of a run's memory needs, and rejection of a run that the node cannot hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/memory/free_space.h"
#include "engine/memory/memory_estimate.h"

namespace zeroth::engine {

// The memory of a run that trains adapters in place of the model.
struct AdapterMemory {
  std::string flags;        // that request it: "--use_peft --load_in_4bit"
  zero::MemoryPlan memory;  // of one rank
};

// RunMemory is the memory that a run needs, and the memory available to it.
struct RunMemory {
  configs::Config config;
  EstimateOptions options;
  zero::MemoryPlan memory;  // of one rank
  FreeSpace free;
  // Returns the memory with another configuration and options. Throws an Error if they do not work
  // with the model.
  std::function<zero::MemoryPlan(const configs::Config&, const EstimateOptions&)> estimate;
  // Returns the memory with adapters, and with adapters over weights in NF4, as far as the run does
  // not have them. Null if that is unknown.
  std::function<std::vector<AdapterMemory>(const EstimateOptions&)> with_adapters = nullptr;
};

// Returns the memory of a run of blocks that initialize() will take over on all ranks, `here` of
// which are on this node; keeps the blocks. The values of their parameters use CPU memory until
// then. `root` is "/" except in tests. Throws the Errors of estimate_memory and free_space.
RunMemory run_memory(const model::Blocks& blocks, const configs::Config& config,
                     const EstimateOptions& options, int here,
                     const std::filesystem::path& root = "/");
// Returns `run` with the memory of activations added.
RunMemory with_activations(RunMemory run, const MicroBatchSize& micro_batch);

// MemoryNeed is the bytes of all ranks of one node together, at the same time.
struct MemoryNeed {
  int64_t host = 0;  // includes device memory of a CPU run, and files that are held in memory
  std::map<std::string, int64_t> files;  // by directory
};
MemoryNeed memory_need(const RunMemory& run);

// Throws an Error if the node has less CPU memory or disk space left than the run needs. The Error
// states the need by kind, the limit that applies, the fewest changes after which the run fits, and
// what adapters would need.
void require_memory(const RunMemory& run);

// Returns a line for each kind of memory in use, with the bytes by kind of data, and one for the
// node.
std::vector<std::string> memory_lines(const RunMemory& run);

// Returns the bytes in use on a GPU once the ranks are connected: CUDA's context, and, if there are
// several ranks with a GPU each, NCCL's communicator of all ranks. Communicators of subgroups come
// later.
int64_t connected_gpu_bytes(const comm::MeshShape& shape);

// Returns a warning if a GPU has less memory free than the run needs on it, with what adapters
// would need. `free` is in bytes and includes those that the rank has allocated already.
std::optional<std::string> gpu_warning(const RunMemory& run, int64_t free);

}  // namespace zeroth::engine
