// Where a block's parameters come from. Owns the working-precision memory of every unit and this
// rank's shard of it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "comm/group.h"
#include "offload/staging.h"
#include "zero/buffer_pool.h"
#include "zero/unit.h"

namespace zeroth::zero {

class ParamStore;

// A block's parameters are whole and up to date while it lives.
class Lease {
 public:
  Lease(ParamStore& store, size_t block) : store_(&store), block_(block) {}
  Lease(Lease&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), block_(other.block_) {}
  Lease& operator=(Lease&&) = delete;
  ~Lease();

 private:
  ParamStore* store_;
  size_t block_;
};

// What becomes of a unit's whole buffer.
enum class Retention {
  kWhole,    // every rank owns all of it: it is never gathered
  kRefresh,  // whole on every rank; the shard is a range of it; gathered again after an update
  kRelease,  // gathered before use, released after it; only the shard rests here
};

struct ParamStoreOptions {
  std::vector<Retention> retention;    // per unit
  torch::Dtype dtype = torch::kFloat;  // working precision
  // Gathered ahead of use: whole blocks that fit, at least one unless 0.
  int64_t prefetch_elements = 0;
  // Of kRelease units whose whole buffers are present; 0: only those of the block in use.
  int64_t max_live_elements = INT64_MAX;
  // Gathers under way read at most so many shards at a time.
  size_t max_reads = SIZE_MAX;
  // Per unit: where the shard of a kRelease unit rests between uses; null: on the device. Empty:
  // all on the device.
  std::vector<offload::ShardStore*> rests = {};
  // Lends to the host what rests on the device; null where they are one.
  std::shared_ptr<offload::Staging> staging = nullptr;
};

// Throws an Error that names the key and the smallest value that works when max_live_elements
// is not 0 and cannot hold two neighbouring blocks.
void check_max_live(const UnitPlan& plan, const ParamStoreOptions& options);

class ParamStore {
 public:
  // Turns the plan's parameters into views of flat buffers (contents undefined until shards are
  // written and `updated`). Keeps references to `plan`, `group` and the stores. Throws an Error as
  // check_max_live.
  ParamStore(const UnitPlan& plan, comm::Group& group, torch::Device device,
             ParamStoreOptions options);
  ~ParamStore();

  // The block visits to come, in order; gathers run ahead along them, and reads of what rests
  // elsewhere ahead of these. An empty list releases all that is not kept.
  void expect(std::vector<size_t> visits);
  // Whole, updated parameters of every unit of the block, ordered on the current stream. With
  // expected visits left, `block` must be the next of them. Collective when something has to be
  // gathered.
  [[nodiscard]] Lease gather(size_t block);

  // This rank's part of a unit, 1-D, working precision, on `device`; kRead: after the update that
  // waits. Writers call updated() when the lease is gone.
  offload::TileLease shard(size_t unit, torch::Device device, offload::Access access);
  // Range of the flat buffer that shard() is.
  Range shard_range(size_t unit) const;
  void updated(size_t unit);
  torch::Dtype dtype() const { return options_.dtype; }
  torch::Device device() const { return device_; }

  // Updates that wait for the next use of their unit: gather() calls `update(unit)` before it uses
  // one that will_update() has named, and one block ahead of that; `update` writes the shard and
  // calls updated().
  void update_before_use(std::function<void(size_t unit)> update) { update_ = std::move(update); }
  // `reads`: the update needs the present values too.
  void will_update(size_t unit, bool reads);

  // Elements of kRelease units whose whole buffers are present now, and the most there ever were.
  int64_t live_elements() const { return live_elements_; }
  int64_t peak_live_elements() const { return peak_live_elements_; }
  // The most that following the expected visits will make live.
  int64_t planned_live_elements() const;
  // Bytes that gathered buffers took at most; they are kept for the next gathers.
  int64_t gathered_bytes() const { return pool_.allocated_bytes(); }
  // Bytes of shards and of kept buffers, in files not counted.
  int64_t resting_bytes() const;

 private:
  friend class Lease;

  enum class Stale { kNo, kReadFirst, kOverwritten };  // an update is to come

  struct State {
    torch::Tensor shard;          // [shard_numel], part of `full`; none of a kRelease unit, which
    size_t number = 0;            // has this shard of its store
    torch::Tensor full;           // [numel]; without memory while a kRelease unit is released
    comm::Pending pending;        // the gather under way
    offload::TileLease gathered;  // what it reads
    bool present = false;         // full holds (or is about to hold) the parameters
    int leases = 0;
  };

  void create(size_t unit);
  void bind_parameters(size_t unit);
  bool released(size_t unit) const { return options_.retention[unit] == Retention::kRelease; }
  std::set<offload::ShardStore*> stores() const;
  bool on_device(size_t unit) const;  // the shard
  bool lent_whole(size_t unit) const;
  offload::Tile tile(size_t unit) const;
  // Units that shall be present at visit `position`: those of its block, then those that fit ahead
  // of it.
  std::vector<size_t> wanted(size_t position, const std::vector<Stale>& stale) const;
  int64_t cost(size_t unit) const;
  // Tells the stores in which order gathers along the visits to come will read: up to the last
  // update that waits, or all when none does.
  void expect_reads() const;
  static bool any_stale(const std::vector<Stale>& stale);
  void start_gather(size_t unit);
  void end_gather(size_t unit);
  void drop(size_t unit);
  void drop_all_but(const std::vector<size_t>& kept);
  void end_lease(size_t block);

  const UnitPlan& plan_;
  comm::Group& group_;
  torch::Device device_;
  ParamStoreOptions options_;
  BufferPool pool_;
  std::deque<size_t> reading_;  // units with a lease in `gathered`, oldest first
  std::unique_ptr<offload::ShardStore> on_device_;  // for units without a store in the options
  std::vector<State> states_;
  std::vector<Stale> stale_;  // [unit]
  offload::Point idle_;       // behind it nobody uses the stale ones on the device
  std::function<void(size_t)> update_;
  std::vector<size_t> visits_;
  size_t position_ = 0;  // of the next visit
  int64_t live_elements_ = 0;
  int64_t peak_live_elements_ = 0;
};

}  // namespace zeroth::zero
