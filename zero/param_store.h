// Where a unit's working-precision parameters come from: this rank's share of each, and whole ones
// while they are leased.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "comm/device_mesh.h"
#include "offload/staging.h"
#include "zero/unit.h"
#include "zero/unit_buffers.h"

namespace zeroth::zero {

class ParamStore;

// A block's parameters are whole while it lives.
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

// Tiles that will be borrowed, in order.
using Reads = std::map<offload::ShardStore*, std::vector<offload::ShardChunk>>;

struct ParamStoreOptions {
  torch::Dtype dtype = torch::kFloat;  // working precision
  // Gathers under way read at most so many shares at a time.
  size_t max_reads = SIZE_MAX;
  // Per unit: where the share of a kBeforeUse unit rests between uses; null: on the device. Empty:
  // all on the device.
  std::vector<offload::ShardStore*> shard_stores = {};
  // Lends to the host what rests on the device; null where they are one.
  std::shared_ptr<offload::Staging> staging = nullptr;
  // So many neighbouring data ranks keep every kBeforeUse unit between them and gather from each
  // other alone: hybrid sharding (ZeRO++, arXiv 2306.10209). 1: none. Shares rest on the device
  // then.
  int hpz_partition_size = 1;
};

class ParamStore {
 public:
  // Turns the plan's parameters into views of flat buffers (contents undefined until shares are
  // written and `updated`). Keeps references to `plan`, `mesh` and the stores. Collective.
  ParamStore(const UnitPlan& plan, const comm::DeviceMesh& mesh, torch::Device device,
             ParamStoreOptions options);
  ~ParamStore();

  // Begins to make a unit whole; does nothing where it is whole. Collective when it has to be
  // gathered.
  void begin_gather(size_t unit);
  // Whole parameters of every unit of the block, whose gathers have begun, ordered on the current
  // stream.
  [[nodiscard]] Lease lease(size_t block);
  // Releases the kBeforeUse units that are whole and neither leased nor among `kept`.
  void release_all_but(const std::vector<size_t>& kept);
  // [unit]: the whole buffer holds, or is about to hold, the parameters.
  std::vector<bool> present() const;
  // The tiles that gathers of these kBeforeUse units read, in order. Every store has an entry, of
  // which an empty one voids what that store expected; there is none where all shares are on the
  // device.
  Reads reads(const std::vector<size_t>& units) const;

  // This rank's share of a unit, 1-D, working precision, on `device`. Writers call mark_updated()
  // when the lease is gone. `idle`: behind it nobody uses what rests on the device; by default now.
  // What the host writes there reaches those who gather, lease or share the unit next.
  offload::ChunkLease acquire_shard(size_t unit, torch::Device device, offload::Access access,
                                    const std::optional<device::StreamEvent>& idle = std::nullopt);
  // The same for other threads to read, as offload::ShardStore::in_place().
  torch::Tensor in_place(size_t unit) const;
  // Range of the flat buffer that acquire_shard() is.
  Range range(size_t unit) const { return plan_.units[unit].owned_range(); }
  // `written`: behind it what rests on the device has its new values; null: it has them now.
  void mark_updated(size_t unit, const device::StreamEvent& written = {});
  torch::Dtype dtype() const { return options_.dtype; }
  torch::Device device() const { return device_; }
  const comm::DeviceMesh& mesh() const { return mesh_; }

  const UnitBuffers& buffers() const { return buffers_; }
  // Bytes of shares and of kept buffers, in files not counted.
  int64_t persistent_bytes() const;

 private:
  friend class Lease;

  // What near ranks keep of a unit: the shares of all ranks that stand at this one's place of their
  // run, so that a run has all of them.
  struct SecondaryShard {
    comm::Group* shard_group = nullptr;    // the near ranks; null: all holders are gathered from
    comm::Group* replica_group = nullptr;  // those whose shares are kept
    torch::Tensor shards;                  // of `across`, one after the other
    bool up_to_date = false;               // they are those of the last update
  };

  struct ParamState {
    comm::Group* shard_group = nullptr;  // of the unit
    SecondaryShard secondary;
    size_t store_index = 0;                       // a kBeforeUse unit's share in its store
    std::vector<comm::CollectiveHandle> pending;  // the gather under way
    offload::ChunkLease gathered;                 // what it reads
    device::StreamEvent written;  // what rests on the device has its values behind it; null: now
    bool present = false;
    int leases = 0;
  };

  void gather_secondary(size_t unit);
  bool is_gathered_before_use(size_t unit) const {
    return plan_.units[unit].is_gathered_before_use();
  }
  std::set<offload::ShardStore*> stores() const;
  bool on_device(size_t unit) const;  // the share
  bool aliases_store(size_t unit) const;
  offload::ShardChunk tile(size_t unit) const;
  torch::Tensor read_shard(size_t unit);
  void gather_from_all(size_t unit);
  void issue(size_t unit, const std::function<void()>& gather);
  // Orders the current stream after what was written to the unit. Returns whether that was needed.
  bool order_written(size_t unit);
  void end_gather(size_t unit);
  void release(size_t unit);
  void end_lease(size_t block);

  const UnitPlan& plan_;
  const comm::DeviceMesh& mesh_;
  torch::Device device_;
  ParamStoreOptions options_;
  UnitBuffers buffers_;
  std::deque<size_t> reading_;  // units with a lease in `gathered`, oldest first
  std::unique_ptr<offload::ShardStore> on_device_;  // for units without a store in the options
  std::vector<ParamState> states_;
};

}  // namespace zeroth::zero
