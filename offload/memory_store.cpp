#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/host_link.h"
#include "offload/shard_store.h"

namespace zeroth::offload {
namespace {

class MemoryStore final : public ShardStore {
 public:
  // In `host` memory, or else in memory that LibTorch takes on `device`.
  explicit MemoryStore(torch::Device device, std::optional<device::HostMemory> host = {})
      : device_(device), host_(std::move(host)) {}

  size_t add(int64_t numel, torch::Dtype dtype) override {
    shards_.push_back({numel, dtype, {}});
    return shards_.size() - 1;
  }

  void expect(std::vector<Tile>) override {}

  TileLease borrow(const Tile& tile, torch::Device device, Access) override {
    ZEROTH_CHECK(device == device_, "shards rest on {}, asked for {}", device_.str(), device.str());
    ZEROTH_CHECK(tile.shard < shards_.size(), "shard {} of {}", tile.shard, shards_.size());
    Shard& shard = shards_[tile.shard];
    ZEROTH_CHECK(0 <= tile.begin && tile.begin <= tile.end && tile.end <= shard.numel,
                 "tile [{}, {}) of a shard of {}", tile.begin, tile.end, shard.numel);
    return TileLease(values(shard).narrow(0, tile.begin, tile.end - tile.begin));
  }

  torch::Tensor in_place(size_t shard) override {
    return device_.is_cpu() ? values(shards_.at(shard)) : torch::Tensor();
  }

  void settle() override {}

  StoreBytes bytes() const override {
    int64_t bytes = 0;
    for (const Shard& shard : shards_) {
      bytes += shard.numel * static_cast<int64_t>(c10::elementSize(shard.dtype));
    }
    return device_.is_cpu() ? StoreBytes{.host = bytes} : StoreBytes{.device = bytes};
  }

  std::vector<std::string> notes() const override {
    return host_ ? host_->notes() : std::vector<std::string>();
  }

 private:
  struct Shard {
    int64_t numel;
    torch::Dtype dtype;
    torch::Tensor values;  // from the first borrow on: a run that only evaluates has no moments
  };

  const torch::Tensor& values(Shard& shard) {
    if (!shard.values.defined()) shard.values = zeros(shard);
    return shard.values;
  }
  torch::Tensor zeros(const Shard& shard) {
    if (host_) return host_->zeros(shard.numel, shard.dtype);
    return at::zeros({shard.numel}, torch::TensorOptions(device_).dtype(shard.dtype));
  }

  torch::Device device_;
  std::optional<device::HostMemory> host_;
  std::vector<Shard> shards_;
};

}  // namespace

std::unique_ptr<ShardStore> make_memory_store(torch::Device device) {
  return std::make_unique<MemoryStore>(device);
}

std::unique_ptr<ShardStore> make_host_store(std::shared_ptr<device::HostLink> link) {
  return std::make_unique<MemoryStore>(torch::kCPU, link ? link->memory : device::HostMemory());
}

}  // namespace zeroth::offload
