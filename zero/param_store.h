// Where a block's parameters come from. Owns the working-precision memory of every unit and this
// rank's shard of it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.h"
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
};

// Throws an Error that names the key and the smallest value that works when max_live_elements
// is not 0 and cannot hold two neighbouring blocks.
void check_max_live(const UnitPlan& plan, const ParamStoreOptions& options);

class ParamStore {
 public:
  // Turns the plan's parameters into views of flat buffers (contents undefined until shards are
  // written and `updated`). Keeps references to `plan` and `group`. Throws an Error as
  // check_max_live.
  ParamStore(const UnitPlan& plan, comm::Group& group, torch::Device device,
             ParamStoreOptions options);
  ~ParamStore();

  // The block visits to come, in order; gathers run ahead along them. An empty list releases all
  // that is not kept.
  void expect(std::vector<size_t> visits);
  // Whole, updated parameters of every unit of the block, ordered on the current stream. With
  // expected visits left, `block` must be the next of them. Collective when something has to be
  // gathered.
  [[nodiscard]] Lease gather(size_t block);

  // This rank's part of a unit, 1-D, working precision. Writers call updated() afterwards.
  torch::Tensor shard(size_t unit) const { return states_[unit].shard; }
  // Range of the flat buffer that shard() is.
  Range shard_range(size_t unit) const;
  void updated(size_t unit);

  // Elements of kRelease units whose whole buffers are present now, and the most there ever were.
  int64_t live_elements() const { return live_elements_; }
  int64_t peak_live_elements() const { return peak_live_elements_; }
  // The most that following the expected visits will make live.
  int64_t planned_live_elements() const;
  // Bytes of shards and of kept buffers.
  int64_t resting_bytes() const;

 private:
  friend class Lease;

  struct State {
    torch::Tensor shard;    // [shard_numel]
    torch::Tensor full;     // [numel]; its storage has no memory while a kRelease unit is released
    comm::Pending pending;  // the gather under way
    bool present = false;   // full holds (or is about to hold) the parameters
    int leases = 0;
  };

  void create(size_t unit);
  void bind_parameters(size_t unit);
  // Units that shall be present at visit `position`: those of its block, then those that fit ahead
  // of it.
  std::vector<size_t> wanted(size_t position) const;
  int64_t cost(size_t unit) const;
  void start_gather(size_t unit);
  void drop(size_t unit);
  void drop_all_but(const std::vector<size_t>& kept);
  void end_lease(size_t block);

  const UnitPlan& plan_;
  comm::Group& group_;
  torch::Device device_;
  ParamStoreOptions options_;
  BufferPool pool_;
  std::vector<State> states_;
  std::vector<size_t> visits_;
  size_t position_ = 0;  // of the next visit
  int64_t live_elements_ = 0;
  int64_t peak_live_elements_ = 0;
};

}  // namespace zeroth::zero
