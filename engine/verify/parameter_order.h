// Encoding of a parameter as one integer, with which a single all-reduce finds the first one over
// the ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "zero/unit.h"

namespace zeroth::engine {

inline constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Returns the parameter's order. Smaller is earlier in backward: units from the last to the first,
// slots from the last to the first.
int64_t parameter_order(const zero::UnitPlan& plan, size_t unit, size_t slot);

// Returns "block layers.3, parameter layers.3.attention.q.weight".
std::string parameter_at(const zero::UnitPlan& plan, int64_t order);

}  // namespace zeroth::engine
