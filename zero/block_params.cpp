#include "zero/block_params.h"

#include <chrono>
#include <utility>

namespace zeroth::zero {

BlockParams::BlockParams(const UnitPlan& plan, ParamStore& store, ShardedOptimizer& optimizer,
                         const Options& options)
    : plan_(plan),
      store_(store),
      optimizer_(optimizer),
      ahead_(plan, options.limits),
      update_before_use_(options.update_before_use) {}

void BlockParams::expect(std::vector<size_t> visits) {
  if (visits.empty()) store_.release_all_but({});
  ahead_.expect(std::move(visits));
  announce(store_.reads(ahead_.reads(now())));
}

Lease BlockParams::gather(size_t block) {
  GatherAhead::Now before = now();
  const std::vector<size_t> units = ahead_.visit(block, before);
  store_.release_all_but(units);
  for (const size_t unit : units) {
    if (before.updates[unit] != Update::kNone) {
      bring_up_to_date(unit);
      if (const GatherAhead::Now after = now(); !after.waits()) {
        announce(store_.reads(ahead_.reads(after)));
      }
    }
    store_.begin_gather(unit);
  }
  return store_.lease(block);
}

void BlockParams::update(const optim::UpdateStep& step) {
  optimizer_.begin(step);
  if (update_before_use_) return announce(optimizer_.reads());
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) optimizer_.bring_up_to_date(unit);
}

offload::TileLease BlockParams::share(size_t unit) {
  bring_up_to_date(unit);
  return store_.share(unit, store_.device(), offload::Access::kRead);
}

GatherAhead::Now BlockParams::now() const {
  return {.present = store_.present(), .updates = optimizer_.updates()};
}

void BlockParams::bring_up_to_date(size_t unit) {
  const auto begin = std::chrono::steady_clock::now();
  optimizer_.bring_up_to_date(unit);
  update_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void BlockParams::announce(Reads reads) {
  for (auto& [store, tiles] : reads) store->expect(std::move(tiles));
}

}  // namespace zeroth::zero
