// How much memory LibTorch's allocator has given to a thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>

namespace zeroth::engine {

// Counts while a c10::DebugInfoGuard of kind PROFILER_STATE holds it, what is freed meanwhile too.
// What was allocated before is not known to it, and warned of by LibTorch when it is freed.
class Allocations final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  // now() and most() are bytes counted from here on.
  void begin() { begin_ = most_ = now_; }
  int64_t now() const { return now_ - begin_; }
  int64_t most() const { return most_ - begin_; }

 private:
  int64_t begin_ = 0, now_ = 0, most_ = 0;
};

}  // namespace zeroth::engine
