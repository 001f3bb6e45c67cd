// The working-precision parameters of the units: this rank's shard of each, and full parameters
// while they are leased.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "comm/device_mesh.h"
#include "device/tensor.h"
#include "offload/staging.h"
#include "zero/flat_layout.h"
#include "zero/unit_buffers.h"

namespace zeroth::zero {

class ParamStore;

// A Lease keeps a block's parameters gathered while it lives.
using Lease = std::unique_ptr<ParamStore, std::function<void(ParamStore*)>>;

struct ParamStoreOptions {
  torch::Dtype dtype = torch::kFloat;  // working precision
  // Maximum number of shards that gathers in flight read at a time.
  size_t max_reads = SIZE_MAX;
  // Per unit: the store of a kBeforeUse unit's shard between uses; null: on the device. Empty: all
  // on the device.
  std::vector<offload::ShardStore*> shard_stores = {};
  // Leases values on the device to the CPU; null if they are one.
  std::shared_ptr<offload::Staging> staging = nullptr;
  // Number of neighboring data-parallel ranks that keep a full copy of every kBeforeUse unit
  // between them and gather from each other only: hybrid sharding (ZeRO++, arXiv 2306.10209). 1:
  // none. Requires shards on the device.
  int hpz_partition_size = 1;
};

class ParamStore {
 public:
  // Turns the plan's parameters into views of flat buffers (contents undefined until shards are
  // written and mark_updated() is called). Keeps references to `plan`, `mesh` and the stores.
  // Collective.
  ParamStore(const UnitPlan& plan, const comm::DeviceMesh& mesh, torch::Device device,
             ParamStoreOptions options);
  ~ParamStore();

  // Begins to gather a unit; does nothing if it is present. Collective if it has to be gathered.
  void begin_gather(size_t unit);
  // Leases the full parameters of every unit of the block, whose gathers have begun, ordered on the
  // current stream.
  [[nodiscard]] Lease lease(size_t block);
  // Releases the kBeforeUse units that are present and neither leased nor among `kept`.
  void release_all_but(const std::vector<size_t>& kept);
  // Returns per [unit] whether the full buffer holds, or will hold, the parameters.
  std::vector<bool> present() const;
  // Returns the chunks that gathers of these kBeforeUse units read, in order. Every store has an
  // entry; an empty one cancels the store's expected reads. There are no entries if all shards are
  // on the device.
  offload::Reads reads(const std::vector<size_t>& units) const;

  // Acquires this rank's shard of a unit, 1-D, working precision, on `device`. Writers call
  // mark_updated() after the lease has ended. `idle`: event after which no work uses the values on
  // the device; by default now. Values that the CPU writes reach the next gather, lease or acquire
  // of the unit.
  offload::ChunkLease acquire_shard(size_t unit, torch::Device device, offload::Access access,
                                    const std::optional<device::StreamEvent>& idle = std::nullopt);
  // Returns the shard for other threads to read, like offload::ShardStore::in_place().
  torch::Tensor in_place(size_t unit) const;
  // Returns the range of the flat buffer that acquire_shard() covers.
  Range range(size_t unit) const;
  // Marks a unit as updated. `written`: event after which values on the device are new; null: they
  // are now.
  void mark_updated(size_t unit, const device::StreamEvent& written = {});
  torch::Dtype dtype() const { return options_.dtype; }  // working precision
  torch::Dtype dtype(size_t unit) const;                 // of a unit's values
  torch::Device device() const { return device_; }
  const comm::DeviceMesh& mesh() const { return mesh_; }

  const UnitBuffers& buffers() const { return buffers_; }
  // Returns the bytes of shards and of kept buffers; files are not counted.
  int64_t persistent_bytes() const;

 private:
  struct ParamState;

  void gather_secondary(size_t unit);
  bool is_gathered_before_use(size_t unit) const;
  std::set<offload::ShardStore*> stores() const;
  bool on_device(size_t unit) const;  // true if the shard is on the device
  bool aliases_store(size_t unit) const;
  offload::ShardChunk tile(size_t unit) const;
  torch::Tensor read_shard(size_t unit);
  void gather_from_all(size_t unit);
  void issue(size_t unit, const std::function<void()>& gather);
  // Orders the current stream after the last writes to the unit. Returns whether that was needed.
  bool order_written(size_t unit);
  void end_gather(size_t unit);
  void release(size_t unit);

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
