#include "zero/block_params.h"

#include <utility>

#include "base/machine/timer.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::zero {
namespace {

// Starts reads; reads are prefetched only here.
void prefetch(offload::Reads reads) {
  for (auto& [store, tiles] : reads) store->prefetch(std::move(tiles));
}

}  // namespace

BlockParams::BlockParams(const UnitPlan& plan, ParamStore& store, ShardedOptimizer& optimizer,
                         const Options& options)
    : plan_(plan),
      store_(store),
      optimizer_(optimizer),
      ahead_(plan, options.limits),
      update_before_use_(options.update_before_use) {}

void BlockParams::set_access_order(std::vector<size_t> accesses) {
  if (accesses.empty()) store_.release_all_but({});
  ahead_.set_access_order(std::move(accesses));
  prefetch(store_.reads(ahead_.reads(gather_state())));
}

Lease BlockParams::gather(size_t block) {
  GatherPrefetcher::GatherState before = gather_state();
  const std::vector<size_t> units = ahead_.access(block, before);
  store_.release_all_but(units);
  for (const size_t unit : units) {
    if (before.updates[unit] != PendingUpdate::kNone) {
      apply_pending_update(unit);
      if (const GatherPrefetcher::GatherState after = gather_state(); !after.has_pending()) {
        prefetch(store_.reads(ahead_.reads(after)));
      }
    }
    store_.begin_gather(unit);
  }
  return store_.lease(block);
}

void BlockParams::step(const optim::UpdateStep& step) {
  optimizer_.begin_step(step);
  if (update_before_use_) return prefetch(optimizer_.reads());
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) optimizer_.apply_pending_update(unit);
}

offload::ChunkLease BlockParams::acquire_shard(size_t unit) {
  apply_pending_update(unit);
  return store_.acquire_shard(unit, store_.device(), offload::Access::kRead);
}

GatherPrefetcher::GatherState BlockParams::gather_state() const {
  return {.present = store_.present(), .updates = optimizer_.updates()};
}

void BlockParams::apply_pending_update(size_t unit) {
  const ScopedTimer timer(update_seconds_);
  optimizer_.apply_pending_update(unit);
}

}  // namespace zeroth::zero
