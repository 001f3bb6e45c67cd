// Where shards of optimizer state (master, moments) or of parameters lie between uses. Who borrows
// tiles names the device on which it computes, and need not know where the bytes rest.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/host_link.h"
#include "offload/access.h"

namespace zeroth::offload {

// Elements [begin, end) of the shard that add() returned. In stores that are not plain memory tiles
// lie on a grid: they begin at multiples of kChunkAlignment and end at one or with the shard, and a
// shard is cut in the same way each time.
struct ShardChunk {
  size_t shard = 0;
  int64_t begin = 0;
  int64_t end = 0;
  auto operator<=>(const ShardChunk&) const = default;
};
inline constexpr int64_t kChunkAlignment = 4096;

// A tile's values on the device that was asked for. A lease that may write is the tile's only one;
// its changes reach the resting place when it is destroyed.
class ChunkLease {
 public:
  ChunkLease() = default;
  explicit ChunkLease(torch::Tensor tensor, std::function<void()> release = {},
                      std::function<void()> order = {})
      : tensor_(std::move(tensor)), release_(std::move(release)), order_(std::move(order)) {}
  ChunkLease(ChunkLease&& other) noexcept
      : tensor_(std::move(other.tensor_)),
        release_(std::exchange(other.release_, nullptr)),
        order_(std::exchange(other.order_, nullptr)) {}
  ChunkLease& operator=(ChunkLease&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    std::swap(release_, other.release_);
    std::swap(order_, other.order_);
    return *this;
  }
  ~ChunkLease() {
    if (release_) release_();
  }

  const torch::Tensor& tensor() const { return tensor_; }  // 1-D
  // The values are there for what the current stream is given from now on. Does not block. Of
  // leases of acquire() that holds from the start.
  void block_current_stream() {
    if (order_) std::exchange(order_, nullptr)();
  }

 private:
  torch::Tensor tensor_;
  std::function<void()> release_, order_;
};

// Bytes that a store takes, by place.
struct StoreBytes {
  int64_t device = 0;
  int64_t host = 0;  // page-locked ones included
  int64_t file = 0;
};

class ShardStore {
 public:
  virtual ~ShardStore() = default;

  // A new shard of `numel` zeros; returns its number (0, 1, ...). Not after the first borrow.
  virtual size_t add(int64_t numel, torch::Dtype dtype = torch::kFloat) = 0;
  // The tiles that will be borrowed next, in this order; replaces what was expected before. The
  // store reads ahead as deep as its memory allows. Never blocks. A tile that is borrowed out of
  // this order is right all the same, only later.
  virtual void prefetch(std::vector<ShardChunk> chunks) = 0;
  // Blocks until the values are there (or ordered on the current stream of a GPU). Throws an Error
  // that names path, offset and reason when they cannot be read, or an earlier tile could not be
  // written.
  virtual ChunkLease acquire(const ShardChunk& chunk, torch::Device device, Access access) = 0;
  // As acquire() to read, before the values are used: what uses them on a GPU is queued behind
  // ChunkLease::block_current_stream(), and what is queued before that waits for nothing.
  virtual ChunkLease acquire_async(const ShardChunk& chunk, torch::Device device) {
    return acquire(chunk, device, Access::kRead);
  }
  // Whether a borrow for the CPU, to read or to write, would return at once.
  virtual bool ready(const ShardChunk&) const { return true; }
  // The shard itself where it rests in plain memory of the CPU: other threads may read it while
  // nobody has a lease that writes. Undefined elsewhere.
  virtual torch::Tensor in_place(size_t) { return {}; }
  // Waits until all that was written has arrived. Throws as borrow.
  virtual void flush() = 0;

  virtual StoreBytes bytes() const = 0;
  virtual Traffic traffic() const { return {}; }
  // What the user should know, one line each: notes on slower ways taken.
  virtual std::vector<std::string> notes() const { return {}; }
};

// Shards rest in the device's own memory (for the CPU: host memory); borrowing is taking a view.
// Borrowing for another device is a broken invariant.
std::unique_ptr<ShardStore> make_memory_store(torch::Device device);
// The same in memory of the CPU of exactly a shard's size. `link`: of the device that copies from
// and to it; null: none does.
std::unique_ptr<ShardStore> make_cpu_store(std::shared_ptr<device::HostLink> link);

}  // namespace zeroth::offload
