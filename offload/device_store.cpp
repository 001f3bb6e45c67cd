#include <vector>

#include "base/error.h"
#include "offload/shard_store.h"

namespace zeroth::offload {
namespace {

class DeviceStore final : public ShardStore {
 public:
  explicit DeviceStore(torch::Device device) : device_(device) {}

  size_t add(int64_t numel) override {
    shards_.push_back({numel, {}});
    return shards_.size() - 1;
  }

  void prefetch(const Tile&, torch::Device) override {}

  TileLease borrow(const Tile& tile, torch::Device device, Access) override {
    ZEROTH_CHECK(device == device_, "shards rest on {}, asked for {}", device_.str(), device.str());
    ZEROTH_CHECK(tile.shard < shards_.size(), "shard {} of {}", tile.shard, shards_.size());
    Shard& shard = shards_[tile.shard];
    ZEROTH_CHECK(0 <= tile.begin && tile.begin <= tile.end && tile.end <= shard.numel,
                 "tile [{}, {}) of a shard of {}", tile.begin, tile.end, shard.numel);
    if (!shard.values.defined()) {
      shard.values =
          torch::zeros({shard.numel}, torch::TensorOptions(device_).dtype(torch::kFloat));
    }
    return TileLease(shard.values.narrow(0, tile.begin, tile.end - tile.begin));
  }

  int64_t resting_bytes() const override {
    int64_t bytes = 0;
    for (const Shard& shard : shards_) bytes += shard.numel * static_cast<int64_t>(sizeof(float));
    return bytes;
  }

 private:
  struct Shard {
    int64_t numel;
    torch::Tensor values;  // from the first borrow on: a run that only evaluates has no moments
  };

  torch::Device device_;
  std::vector<Shard> shards_;
};

}  // namespace

std::unique_ptr<ShardStore> make_device_store(torch::Device device) {
  return std::make_unique<DeviceStore>(device);
}

}  // namespace zeroth::offload
