// Where a shard of optimizer state (master, moments) lies between uses. Zero, engine and trainer
// ask for tiles on the device on which they compute and do not learn where the bytes rest.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace zeroth::offload {

enum class Access { kRead, kReadWrite };

// Elements [begin, end) of the shard that add() returned.
struct Tile {
  size_t shard = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// A tile's values on the device that was asked for. A kReadWrite lease is the tile's only one; its
// changes reach the resting place when it is destroyed.
class TileLease {
 public:
  explicit TileLease(torch::Tensor tensor, std::function<void()> write_back = {})
      : tensor_(std::move(tensor)), write_back_(std::move(write_back)) {}
  TileLease(TileLease&& other) noexcept
      : tensor_(std::move(other.tensor_)), write_back_(std::exchange(other.write_back_, nullptr)) {}
  TileLease& operator=(TileLease&&) = delete;
  ~TileLease() {
    if (write_back_) write_back_();
  }

  const torch::Tensor& tensor() const { return tensor_; }  // 1-D fp32

 private:
  torch::Tensor tensor_;
  std::function<void()> write_back_;
};

class ShardStore {
 public:
  virtual ~ShardStore() = default;

  // A new shard of `numel` fp32 zeros; returns its number (0, 1, ...).
  virtual size_t add(int64_t numel) = 0;
  // The tile will be borrowed soon. Never blocks.
  virtual void prefetch(const Tile& tile, torch::Device device) = 0;
  // Blocks until the values are there (or ordered on the current stream).
  virtual TileLease borrow(const Tile& tile, torch::Device device, Access access) = 0;
  virtual int64_t resting_bytes() const = 0;
};

// Shards rest in the device's own memory; borrowing is taking a view. Borrowing for another device
// is a broken invariant.
std::unique_ptr<ShardStore> make_device_store(torch::Device device);

}  // namespace zeroth::offload
