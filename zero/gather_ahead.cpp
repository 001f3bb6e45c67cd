#include "zero/gather_ahead.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::zero {
namespace {

bool holds(const std::vector<size_t>& units, size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

// Elements that a unit's whole buffer adds to what is live.
int64_t cost(const Unit& unit) {
  return unit.released() ? unit.layout.numel() : 0;
}

}  // namespace

void check_max_live(const UnitPlan& plan, const GatherLimits& limits) {
  int64_t needed = 0;
  size_t where = 0;
  for (size_t block = 0; block < plan.block_units.size(); ++block) {
    std::vector<size_t> both = plan.block_units[block];
    if (block + 1 < plan.block_units.size()) {
      const auto& next = plan.block_units[block + 1];
      both.insert(both.end(), next.begin(), next.end());
    }
    std::sort(both.begin(), both.end());
    both.erase(std::unique(both.begin(), both.end()), both.end());
    int64_t sum = 0;
    for (const size_t unit : both) sum += cost(plan.units[unit]);
    if (sum > needed) {
      needed = sum;
      where = block;
    }
  }
  if (limits.max_live_elements > 0 && needed > limits.max_live_elements) {
    throw Error(
        "zero_optimization.stage3_max_live_parameters is {}, but block {} and the one after it "
        "hold {} elements together: 0 gathers no block ahead, else the smallest value that works "
        "is {}",
        limits.max_live_elements, plan.block_labels[where], needed, needed);
  }
}

bool GatherAhead::Now::waits() const {
  return std::any_of(updates.begin(), updates.end(),
                     [](Update update) { return update != Update::kNone; });
}

GatherAhead::GatherAhead(const UnitPlan& plan, const GatherLimits& limits)
    : plan_(plan), limits_(limits) {
  check_max_live(plan, limits);
}

void GatherAhead::expect(std::vector<size_t> visits) {
  visits_ = std::move(visits);
  position_ = 0;
}

std::vector<size_t> GatherAhead::visit(size_t block, const Now& now) {
  if (position_ == visits_.size()) return plan_.block_units[block];
  ZEROTH_CHECK(visits_[position_] == block, "block {} is visited, {} was expected", block,
               visits_[position_]);
  return wanted(position_++, now);
}

std::vector<size_t> GatherAhead::wanted(size_t position, const Now& now) const {
  std::vector<size_t> units = plan_.block_units[visits_[position]];
  int64_t live = 0;
  for (const size_t unit : units) live += cost(plan_.units[unit]);
  int64_t ahead = 0;
  for (size_t p = position + 1; p < visits_.size() && limits_.prefetch_elements > 0; ++p) {
    if (units.size() == plan_.units.size()) break;
    std::vector<size_t> more;
    int64_t elements = 0;
    int64_t made_live = 0;
    bool updates = false;
    for (const size_t unit : plan_.block_units[visits_[p]]) {
      if (holds(units, unit)) continue;
      more.push_back(unit);
      made_live += cost(plan_.units[unit]);
      const bool waits = now.updates[unit] != Update::kNone;
      updates = updates || waits;
      if (plan_.units[unit].released() || !now.present[unit] || waits) {
        elements += plan_.units[unit].layout.numel();
      }
    }
    // Compute need not wait for more updates than those of the next block.
    const bool fits = ahead == 0 || (!updates && ahead + elements <= limits_.prefetch_elements);
    if (!fits || live + made_live > limits_.max_live_elements) break;
    ahead += elements;
    live += made_live;
    units.insert(units.end(), more.begin(), more.end());
  }
  return units;
}

std::vector<size_t> GatherAhead::reads(Now now) const {
  std::vector<size_t> reads;
  // Behind the last update it would be too early for what is updated before it, and push that out.
  const auto ends = [&, updates = now.waits()] { return updates && !now.waits(); };
  std::vector<size_t> kept;
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    if (now.present[unit]) kept.push_back(unit);
  }
  for (size_t position = position_; position < visits_.size() && !ends(); ++position) {
    std::vector<size_t> units = wanted(position, now);
    for (const size_t unit : units) {
      if (ends()) break;
      // What an update has just written is still at hand.
      const bool written = std::exchange(now.updates[unit], Update::kNone) == Update::kOverwrites;
      if (!holds(kept, unit) && !written && plan_.units[unit].released()) reads.push_back(unit);
    }
    kept = std::move(units);
  }
  return reads;
}

}  // namespace zeroth::zero
