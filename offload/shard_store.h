// Stores of shards of optimizer state (master, moments) or of parameters between uses. A user that
// acquires chunks names the device that it computes on, and need not know the backing storage.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/host_link.h"
#include "device/tensor.h"
#include "offload/access.h"

namespace zeroth::offload {

// A ShardChunk is elements [begin, end) of the shard that add() returned. In stores other than
// plain memory, chunks are aligned: they begin at multiples of kChunkAlignment and end at one or
// with the shard, and a shard is always divided in the same way.
struct ShardChunk {
  size_t shard = 0;
  int64_t begin = 0;
  int64_t end = 0;
  auto operator<=>(const ShardChunk&) const = default;
};
inline constexpr int64_t kChunkAlignment = 4096;

// A ChunkLease holds a chunk's values on the requested device. A lease that can write is the only
// one of its chunk; its destructor starts the transfer of the changes to the backing storage.
class ChunkLease {
 public:
  ChunkLease() = default;
  // `held` is destroyed at the end of the lease, which ends it in its store.
  explicit ChunkLease(torch::Tensor tensor, std::shared_ptr<void> held = nullptr,
                      std::function<void()> order = {})
      : tensor_(std::move(tensor)), held_(std::move(held)), order_(std::move(order)) {}
  ChunkLease(ChunkLease&&) = default;
  ChunkLease& operator=(ChunkLease&&) = default;

  const torch::Tensor& tensor() const { return tensor_; }  // 1-D
  // Orders all later work of the current stream after the arrival of the values. Does not block.
  // Has no effect on leases of acquire(), whose values are ordered already.
  void block_current_stream() {
    if (order_) std::exchange(order_, nullptr)();
  }

 private:
  torch::Tensor tensor_;
  std::shared_ptr<void> held_;
  std::function<void()> order_;
};

// StoreBytes is the memory use of a store, by location.
struct StoreBytes {
  int64_t device = 0;
  int64_t host = 0;  // page-locked memory included
  int64_t file = 0;
};

class ShardStore {
 public:
  virtual ~ShardStore() = default;

  // Adds a shard of `numel` zeros; returns its index (0, 1, ...). Not allowed after the first
  // acquire().
  virtual size_t add(int64_t numel, torch::Dtype dtype = torch::kFloat) = 0;
  // Sets the chunks that will be acquired next, in this order; replaces the earlier list. The store
  // reads ahead as deep as its memory allows. Never blocks. Acquiring out of this order is correct,
  // only slower.
  virtual void prefetch(std::vector<ShardChunk> chunks) = 0;
  // Blocks until the values are available (or ordered on the current stream of a GPU). Throws an
  // Error that names path, offset and reason if they cannot be read, or if an earlier chunk could
  // not be written.
  virtual ChunkLease acquire(const ShardChunk& chunk, torch::Device device, Access access) = 0;
  // Acquires for reading without ordering the current stream. Work on a GPU that uses the values
  // must be queued after ChunkLease::block_current_stream(); work queued before that waits for
  // nothing.
  virtual ChunkLease acquire_async(const ShardChunk& chunk, torch::Device device) {
    return acquire(chunk, device, Access::kRead);
  }
  // Returns whether acquire() for the CPU, to read or to write, would return at once.
  virtual bool ready(const ShardChunk&) const { return true; }
  // Returns the shard itself if it is stored in plain CPU memory: other threads may read it while
  // no lease can write. Returns an undefined tensor otherwise.
  virtual torch::Tensor in_place(size_t) { return {}; }
  // Blocks until all writes are complete. Throws as acquire() does.
  virtual void flush() = 0;

  virtual StoreBytes bytes() const = 0;
  virtual Traffic traffic() const { return {}; }
  // Returns notes for users on slower paths that are in use, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Chunks that will be acquired, in order, from each store.
using Reads = std::map<ShardStore*, std::vector<ShardChunk>>;

// Makes a store in the device's own memory (on the CPU: CPU memory); a lease is a view. Acquiring
// for another device breaks an invariant.
std::unique_ptr<ShardStore> make_memory_store(torch::Device device);
// Makes a store in CPU memory of exactly the shards' sizes; a lease is a view. `link` is that of
// the device that copies from and to the memory; null if none does.
std::unique_ptr<ShardStore> make_cpu_store(std::shared_ptr<device::HostLink> link);

struct StagingOptions {
  // Maximum number of chunks that are copied to the device ahead of their use, along prefetch().
  size_t depth = 4;
  // Maximum number of inner leases at a time, as long as waiting for copies can free one; at least
  // one more than the caller holds.
  size_t inner_leases = SIZE_MAX;
  // Access of the prefetched chunks: kRead for parameters, kReadWrite for states.
  Access expected = Access::kReadWrite;
};

// Makes a store that copies a chunk of `inner` to `device` when it is acquired there and, if it was
// acquired to write, back when the lease is destroyed. Both copies are ordered against the current
// stream and block neither it nor the CPU, except that acquire() waits for a chunk whose copy back
// is in flight. If reads are expected and the next acquired chunk is the one that the device wrote
// last, the device reads it in the same memory at once, while it is still being copied back. Work
// that uses the tensor must be queued, or ordered, on the current stream before the lease is
// destroyed. A lease for the CPU is the inner store's, and includes all changes by the device. A
// chunk has one lease at a time, unless all of them only read.
// Its traffic() is the inner store's; the link's statistics count the copies.
std::unique_ptr<ShardStore> make_staging_store(std::unique_ptr<ShardStore> inner,
                                               std::shared_ptr<device::HostLink> link,
                                               torch::Device device,
                                               const StagingOptions& options = {});

}  // namespace zeroth::offload
