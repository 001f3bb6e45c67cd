#include "zero/gather_prefetcher.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "zero/unit.h"

namespace zeroth::zero {
namespace {

bool holds(const std::vector<size_t>& units, size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

// Returns the elements that a unit's full buffer adds to the live ones.
int64_t live_elements(const Unit& unit) {
  return unit.is_gathered_before_use() ? unit.layout.numel() : 0;
}

}  // namespace

void check_max_live(const UnitPlan& plan, const GatherLimits& limits) {
  int64_t needed = 0;
  size_t where = 0;
  for (size_t block = 0; block < plan.block_units.size(); ++block) {
    std::set<size_t> both(plan.block_units[block].begin(), plan.block_units[block].end());
    if (block + 1 < plan.block_units.size()) {
      const auto& next = plan.block_units[block + 1];
      both.insert(next.begin(), next.end());
    }
    int64_t sum = 0;
    for (const size_t unit : both) sum += live_elements(plan.units[unit]);
    if (sum > needed) {
      needed = sum;
      where = block;
    }
  }
  if (limits.max_live_elements > 0 && needed > limits.max_live_elements) {
    throw Error(
        "zero_optimization.stage3_max_live_parameters is {}, but block {} and the one after it "
        "hold {} elements together: 0 disables prefetch, otherwise the smallest value that "
        "works is {}",
        limits.max_live_elements, plan.block_labels[where], needed, needed);
  }
}

bool GatherPrefetcher::GatherState::has_pending() const {
  return std::any_of(updates.begin(), updates.end(),
                     [](PendingUpdate update) { return update != PendingUpdate::kNone; });
}

GatherPrefetcher::GatherPrefetcher(const UnitPlan& plan, const GatherLimits& limits)
    : plan_(plan), limits_(limits) {
  check_max_live(plan, limits);
}

void GatherPrefetcher::set_access_order(std::vector<size_t> accesses) {
  accesses_ = std::move(accesses);
  position_ = 0;
}

std::vector<size_t> GatherPrefetcher::access(size_t block, const GatherState& now) {
  const bool is_next = position_ < accesses_.size() && accesses_[position_] == block;
  if (!is_next && position_ > 0 && accesses_[position_ - 1] == block) return last_units_;
  if (position_ == accesses_.size()) return plan_.block_units[block];
  ZEROTH_CHECK(accesses_[position_] == block, "block {} is accessed, {} was expected", block,
               accesses_[position_]);
  return last_units_ = units_to_gather(position_++, now);
}

std::vector<size_t> GatherPrefetcher::units_to_gather(size_t position,
                                                      const GatherState& now) const {
  std::vector<size_t> units = plan_.block_units[accesses_[position]];
  int64_t live = 0;
  for (const size_t unit : units) live += live_elements(plan_.units[unit]);
  int64_t ahead = 0;
  for (size_t p = position + 1; p < accesses_.size() && limits_.prefetch_elements > 0; ++p) {
    if (units.size() == plan_.units.size()) break;
    std::vector<size_t> more;
    int64_t elements = 0;
    int64_t added_live = 0;
    bool updates = false;
    for (const size_t unit : plan_.block_units[accesses_[p]]) {
      if (holds(units, unit)) continue;
      more.push_back(unit);
      added_live += live_elements(plan_.units[unit]);
      const bool waits = now.updates[unit] != PendingUpdate::kNone;
      updates = updates || waits;
      if (plan_.units[unit].is_gathered_before_use() || !now.present[unit] || waits) {
        elements += plan_.units[unit].layout.numel();
      }
    }
    // Compute must not wait for more updates than those of the next block.
    const bool fits = ahead == 0 || (!updates && ahead + elements <= limits_.prefetch_elements);
    if (!fits || live + added_live > limits_.max_live_elements) break;
    ahead += elements;
    live += added_live;
    units.insert(units.end(), more.begin(), more.end());
  }
  return units;
}

std::vector<size_t> GatherPrefetcher::reads(GatherState now) const {
  std::vector<size_t> reads;
  // A read past the last update is too early for units updated before it, and would evict them.
  const auto ends = [&, updates = now.has_pending()] { return updates && !now.has_pending(); };
  std::vector<size_t> kept;
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    if (now.present[unit]) kept.push_back(unit);
  }
  for (size_t position = position_; position < accesses_.size() && !ends(); ++position) {
    std::vector<size_t> units = units_to_gather(position, now);
    for (const size_t unit : units) {
      if (ends()) break;
      // The values that an update has just written are still in memory.
      const bool written =
          std::exchange(now.updates[unit], PendingUpdate::kNone) == PendingUpdate::kOverwrite;
      if (!holds(kept, unit) && !written && plan_.units[unit].is_gathered_before_use())
        reads.push_back(unit);
    }
    kept = std::move(units);
  }
  return reads;
}

std::vector<int64_t> count_gathers(const UnitPlan& plan, const GatherLimits& limits,
                                   const std::vector<size_t>& accesses) {
  GatherPrefetcher prefetcher(plan, limits);
  prefetcher.set_access_order(accesses);
  GatherPrefetcher::GatherState now{
      std::vector<bool>(plan.units.size()),
      std::vector<PendingUpdate>(plan.units.size(), PendingUpdate::kNone)};
  std::vector<int64_t> gathers(plan.units.size());
  for (const size_t block : accesses) {
    std::vector<bool> kept(plan.units.size());
    for (const size_t unit : prefetcher.access(block, now)) {
      kept[unit] = true;
      if (!now.present[unit] && plan.units[unit].is_gathered_before_use()) ++gathers[unit];
    }
    now.present = std::move(kept);
  }
  return gathers;
}

}  // namespace zeroth::zero
