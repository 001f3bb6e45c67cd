// The choice of units that are gathered when a block is accessed: the block's own, and those to
// prefetch. It moves no data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zeroth::zero {

struct UnitPlan;

struct GatherLimits {
  // Limit of the prefetch, in whole blocks; at least one unit unless 0.
  int64_t prefetch_elements = 0;
  // Limit for kBeforeUse units that are gathered; 0: only those of the block in use.
  int64_t max_live_elements = INT64_MAX;
};

// Throws an Error that names the key and the smallest valid value if max_live_elements is not 0 and
// cannot hold two neighboring blocks.
void check_max_live(const UnitPlan& plan, const GatherLimits& limits);

// The pending update of a unit: none, one of its present values, or one that overwrites them.
enum class PendingUpdate { kNone, kInPlace, kOverwrite };

class GatherPrefetcher {
 public:
  // State of each unit, [unit].
  struct GatherState {
    std::vector<bool> present;  // the full buffer holds, or will hold, the parameters
    std::vector<PendingUpdate> updates;

    bool has_pending() const;  // true if any unit has a pending update
  };

  // Keeps a reference to `plan`. Throws an Error like check_max_live.
  GatherPrefetcher(const UnitPlan& plan, const GatherLimits& limits);

  // Sets the block accesses to come, in order.
  void set_access_order(std::vector<size_t> accesses);
  // Returns the units that must be present while `block` is in use, in gather order: its own, then
  // those prefetched with it. If accesses are left in the order, `block` must be the next of them,
  // and the position moves past it, or the previous one again.
  std::vector<size_t> access(size_t block, const GatherState& now);
  // Returns the kBeforeUse units whose shards the gathers of coming accesses read, in order: up to
  // the last pending update, or all if none is pending.
  std::vector<size_t> reads(GatherState now) const;

 private:
  std::vector<size_t> units_to_gather(size_t position, const GatherState& now) const;

  const UnitPlan& plan_;
  GatherLimits limits_;
  std::vector<size_t> accesses_;
  size_t position_ = 0;             // index of the next access
  std::vector<size_t> last_units_;  // of the previous access
};

// Returns, by unit, how often a kBeforeUse unit is gathered when blocks are accessed in this order,
// with none present before and no pending update.
std::vector<int64_t> count_gathers(const UnitPlan& plan, const GatherLimits& limits,
                                   const std::vector<size_t>& accesses);

}  // namespace zeroth::zero
