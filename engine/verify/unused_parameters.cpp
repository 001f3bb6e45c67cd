#include "engine/verify/unused_parameters.h"

#include <algorithm>

#include "base/error.h"
#include "comm/cpu_collectives.h"
#include "engine/verify/parameter_order.h"

namespace zeroth::engine {
namespace {

constexpr const char* kWhat = "parameters without a gradient";

int64_t first_unused(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  int64_t first = kNone;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    if (!plan.units[unit].trainable) continue;
    const auto& slots = plan.units[unit].layout.slots();
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot].numel == 0 || grads.got_gradient(unit, slot)) continue;
      first = std::min(first, parameter_order(plan, unit, slot));
    }
  }
  return first;
}

}  // namespace

bool has_unused_parameters(const zero::UnitPlan& plan, const zero::GradReducer& grads) {
  return first_unused(plan, grads) != kNone;
}

void throw_unused_parameter(const zero::UnitPlan& plan, const zero::GradReducer& grads,
                            int64_t step, const comm::DeviceMesh& mesh) {
  const int64_t mine = first_unused(plan, grads);
  const int64_t order = comm::min_over_ranks(mine, kWhat, mesh);
  const int64_t rank = comm::min_over_ranks(mine == order ? mesh.rank() : kNone, kWhat, mesh);
  throw Error(
      "step {}: {} got no gradient on rank {}: zero_optimization.ignore_unused_parameters is false "
      "(with true its gradient counts as zero)",
      step, parameter_at(plan, order), rank);
}

}  // namespace zeroth::engine
