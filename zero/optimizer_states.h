// The values that a checkpoint keeps of this rank's range of every unit: masters and optimizer
// states, listed, read and written array by array.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "offload/staging.h"
#include "optim/update_rule.h"
#include "zero/flat_layout.h"

namespace zeroth::zero {

class ParamStore;
struct UnitPlan;

// The store of a unit's master and optimizer states, and the device that updates them.
struct OptimizerPlacement {
  offload::ShardStore* states = nullptr;
  const optim::UpdateRule* rule = nullptr;  // for tensors on `device`
  torch::Device device = torch::kCPU;
};

struct OptimizerOptions {
  // Elements that are updated at once; rounded down to a multiple of UpdateRule::alignment(), at
  // least one of it.
  int64_t tile_elements = int64_t{1} << 24;
  bool decay_vectors = true;  // false: weight decay skips norm weights and biases
  // Copies gradients to the device that updates a unit, and lets a GPU update beside its current
  // stream. Null if all gradients are there already and the current stream updates.
  std::shared_ptr<offload::Staging> staging = nullptr;
};

// A unit's arrays are its master, which may be the working weight itself, then the rule's states;
// a frozen unit has its working weight only. Each has one entry for each `block` elements of
// ParamStore::range(), which begin with its first one. Values do not include a pending update.
class OptimizerStates {
 public:
  struct Array {
    std::string name;  // "master", "exp_avg"; "weight" if the unit is frozen
    torch::Dtype dtype;
    int64_t block = 1;  // above 1: maxima of coded states

    // Returns the entries of elements that begin with a block and end with one or with a parameter.
    Range entries(const Range& elements) const {
      return {elements.begin / block, (elements.end + block - 1) / block};
    }
  };
  // Indices of a trainable unit's shards in its store. Without a master shard the working weights
  // are the master.
  struct Shard {
    size_t index = 0;
    int64_t block = 1;  // as in Array
  };
  struct UnitShards {
    std::vector<Shard> states;
    std::optional<Shard> master;
  };

  // Uses `places` per unit; only those of trainable units are read. Keeps references to `plan`,
  // `params`, the stores and the rules.
  OptimizerStates(const UnitPlan& plan, ParamStore& params, std::vector<OptimizerPlacement> places,
                  const OptimizerOptions& options);

  std::vector<Array> arrays(size_t unit) const;
  // Returns the ranges, of this rank's range, that an update processes one after the other; all of
  // it if the unit is frozen, none if this rank does not hold it.
  std::vector<Range> tiles(size_t unit) const;
  // Leases the entries of one of tiles() of an array for reading, on the device that updates the
  // unit, or that computes with it if it is frozen.
  offload::ChunkLease read(size_t unit, size_t index, const Range& tile);
  // Returns an array's memory for other threads to read, like offload::ShardStore::in_place().
  torch::Tensor in_place(size_t unit, size_t index);
  // Sets all of an array's values, of any dtype, on any device; those of array 0 are also, rounded,
  // the working weights. The values may be the array's own memory. No update of the unit is
  // pending.
  void write(size_t unit, size_t index, const torch::Tensor& values);

  // Leases the values of a frozen unit for writing, on the device that computes with it. The caller
  // then calls ParamStore::mark_updated().
  offload::ChunkLease overwrite_frozen(size_t unit);

  // Methods for the update of trainable units.

  const OptimizerPlacement& placement(size_t unit) const { return places_[unit]; }
  const UnitShards& shards(size_t unit) const { return shards_[unit]; }
  // Returns the elements of the unit's tiles; the last one may have fewer.
  int64_t tile_elements(size_t unit) const;
  // Returns the chunk of the store that a tile is in a shard.
  static offload::ShardChunk chunk(const Shard& shard, const Range& tile);
  // Acquires a tile of a shard, ordered on the current stream after the unit's last update.
  offload::ChunkLease acquire(size_t unit, const Shard& shard, const Range& tile,
                              offload::Access access);
  // Marks a unit's arrays as updated. `written`: event after which values on the device are new;
  // null: they are now.
  void mark_updated(size_t unit, device::StreamEvent written) {
    updated_[unit] = std::move(written);
  }

 private:
  // Returns the shard of one of arrays(); unset if the array is the working weights.
  std::optional<Shard> find_shard(size_t unit, size_t index) const;
  // Acquires the working weights on the device that updates the unit, or computes with it.
  offload::ChunkLease acquire_weights(size_t unit, offload::Access access);
  void write_weights(size_t unit, const torch::Tensor& values);

  const UnitPlan& plan_;
  ParamStore& params_;
  std::vector<OptimizerPlacement> places_;
  int64_t tile_elements_;
  std::shared_ptr<offload::Staging> staging_;
  std::vector<UnitShards> shards_;
  // [unit]: event after which values on the device have the last update; null: they have it now.
  std::vector<device::StreamEvent> updated_;
};

}  // namespace zeroth::zero
