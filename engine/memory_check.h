// A run's need of memory in words, and the refusal of one that the machine cannot hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/free_space.h"
#include "engine/memory_estimate.h"

namespace zeroth::engine {

// What a run takes, and what there is for it.
struct RunMemory {
  configs::Config config;
  EstimateOptions options;
  zero::MemoryPlan memory;  // of one rank
  FreeSpace free;
  // The memory with other ones of these. Throws an Error where they do not work with the model.
  std::function<zero::MemoryPlan(const configs::Config&, const EstimateOptions&)> estimate;
};

// Of blocks that initialize() is to take over on all ranks, `here` of them on this machine; keeps
// them. What their parameters hold takes host memory until then. `root` is "/" but in tests. Throws
// an Error as estimate_memory and free_space.
RunMemory run_memory(const model::Blocks& blocks, const configs::Config& config,
                     const EstimateOptions& options, int here,
                     const std::filesystem::path& root = "/");
// The same with what activations take.
RunMemory with_activations(RunMemory run, const MicroBatchSize& micro_batch);

// Bytes of all ranks of one machine together, at the same time.
struct MemoryNeed {
  int64_t host = 0;  // on a CPU run the device's memory too; files that are held in memory included
  std::map<std::string, int64_t> files;  // by directory
};
MemoryNeed memory_need(const RunMemory& run);

// Throws an Error when the machine has less host memory or disk left than the run needs there: with
// the need by kind, the limit that rules, and the fewest changes after which it fits.
void require_memory(const RunMemory& run);

// A line for each place where something rests, by kind, and one for the machine.
std::vector<std::string> memory_lines(const RunMemory& run);

// Of a GPU, when the ranks are connected: CUDA's context, and where they are several with a GPU
// each, NCCL's communicator of all ranks. Those of parts of them come later.
int64_t connected_gpu_bytes(const comm::MeshShape& shape);

// What a user should know when a GPU has less free than the run needs on it; `free`: bytes, those
// that the rank has taken already included.
std::optional<std::string> gpu_warning(const zero::MemoryPlan& memory, int64_t free);

}  // namespace zeroth::engine
