// Runs a few blocks for real, on a row or two of a batch, to learn what activations take.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/activations.h"
#include "model/block.h"

namespace zeroth::engine {

struct ProbeOptions {
  int64_t length = 1;                  // positions of a row
  torch::Dtype dtype = torch::kFloat;  // working precision
  torch::Dtype gradients = torch::kFloat;
  bool trains = true;  // false: no graph, no backward
  // For all: with fewer than this for four rows, as many and twice as many rows are run as that
  // allows, so that what does not grow with their number is told apart. Else one row is, and all of
  // it counts for each row.
  double max_operations = 1e9;
};

// Of each block, which are a chain by themselves; their parameters lie on the meta device, and get
// memory that reads as zeros and takes none, with gradients as the engine opens them. On the CPU,
// by its allocator's count; other devices hold the same tensors.
std::vector<BlockBytes> probe_blocks(const model::Blocks& blocks, const ProbeOptions& options);

// Counts while a c10::DebugInfoGuard of kind PROFILER_STATE holds it, what is freed meanwhile too.
// What was allocated before is not known to it, and warned of by LibTorch when it is freed.
class Allocations final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  // now() and peak() are bytes counted from here on.
  void begin() { begin_ = peak_ = now_; }
  int64_t now() const { return now_ - begin_; }
  int64_t peak() const { return peak_ - begin_; }

 private:
  int64_t begin_ = 0, now_ = 0, peak_ = 0;
};

}  // namespace zeroth::engine
