// Probe that runs a few blocks for real, on one or several rows of a batch, to measure the memory
// of their activations.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/tensor.h"
#include "engine/memory/activations.h"
#include "model/block.h"

namespace zeroth::engine {

struct ProbeOptions {
  int64_t length = 1;                  // positions of a row
  torch::Dtype dtype = torch::kFloat;  // working precision
  torch::Dtype gradients = torch::kFloat;
  bool trains = true;  // false: no graph, no backward
  // True: runs the row once before, which has the costs of a first run, so that times are those of
  // later ones.
  bool times = false;
  // Limits the operations of the whole probe. If four rows take fewer, the probe runs as many rows
  // as the limit allows, and twice as many, to separate the bytes that do not grow with the rows.
  // Otherwise it runs one row, and all of its bytes count per row.
  double max_operations = 1e9;
};

// ProbedBlock is what a block needs for a micro-batch.
struct ProbedBlock {
  BlockBytes bytes;
  double seconds_per_token = 0;  // of forward, and of backward if there is one
};

// Measures each block of a chain. The blocks' parameters are on the meta device; the probe gives
// them memory that reads as zeros and occupies none, with gradients as the engine opens them. It
// runs on the CPU and uses the count of the CPU's allocator; other devices hold the same tensors.
std::vector<ProbedBlock> probe_blocks(const model::Blocks& blocks, const ProbeOptions& options);

// Allocations counts bytes, freed ones included, while a c10::DebugInfoGuard of kind PROFILER_STATE
// holds it. It does not know earlier allocations; LibTorch warns when these are freed.
class Allocations final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  // Restarts the count: now() and peak() are bytes counted after this call.
  void begin() { begin_ = peak_ = now_; }
  int64_t now() const { return now_ - begin_; }
  int64_t peak() const { return peak_ - begin_; }

 private:
  int64_t begin_ = 0, now_ = 0, peak_ = 0;
};

}  // namespace zeroth::engine
