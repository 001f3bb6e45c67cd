// Which units are whole when a block is visited: its own, and those that are gathered ahead of use.
// It moves nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/unit.h"

namespace zeroth::zero {

struct GatherLimits {
  // Gathered ahead of use: whole blocks that fit, at least one unless 0.
  int64_t prefetch_elements = 0;
  // Of kBeforeUse units whose whole buffers are present; 0: only those of the block in use.
  int64_t max_live_elements = INT64_MAX;
};

// Throws an Error that names the key and the smallest value that works when max_live_elements
// is not 0 and cannot hold two neighbouring blocks.
void check_max_live(const UnitPlan& plan, const GatherLimits& limits);

// The update that a unit waits for: none, one of its present values, one that overwrites them.
enum class PendingUpdate { kNone, kInPlace, kOverwrite };

class GatherPrefetcher {
 public:
  // [unit]
  struct GatherState {
    std::vector<bool> present;  // the whole buffer holds, or is about to hold, the parameters
    std::vector<PendingUpdate> updates;

    bool has_pending() const;  // whether any unit waits for an update
  };

  // Keeps a reference to `plan`. Throws an Error as check_max_live.
  GatherPrefetcher(const UnitPlan& plan, const GatherLimits& limits);

  // The block visits to come, in order.
  void set_access_order(std::vector<size_t> accesses);
  // The units that shall be present while `block` is in use, in the order in which they are
  // gathered: its own, then those that fit ahead of it. With expected visits left, `block` must be
  // the next of them, which is then behind.
  std::vector<size_t> access(size_t block, const GatherState& now);
  // The kBeforeUse units whose shares the gathers of the visits to come read, in order: up to the
  // last update that waits, or all when none does.
  std::vector<size_t> reads(GatherState now) const;

 private:
  std::vector<size_t> units_to_gather(size_t position, const GatherState& now) const;

  const UnitPlan& plan_;
  GatherLimits limits_;
  std::vector<size_t> accesses_;
  size_t position_ = 0;  // of the next visit
};

}  // namespace zeroth::zero
