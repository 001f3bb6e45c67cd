#include <ATen/ops/zeros.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/shard_store.h"

namespace zeroth::offload {
namespace {

class MemoryStore final : public ShardStore {
 public:
  using Zeros = std::function<torch::Tensor(int64_t numel, torch::Dtype dtype)>;
  using Notes = std::function<std::vector<std::string>()>;

  MemoryStore(torch::Device device, Zeros zeros, Notes notes)
      : device_(device), zeros_(std::move(zeros)), notes_(std::move(notes)) {}

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
    if (!shard.values.defined()) shard.values = zeros_(shard.numel, shard.dtype);
    return TileLease(shard.values.narrow(0, tile.begin, tile.end - tile.begin));
  }

  void settle() override {}

  StoreBytes bytes() const override {
    int64_t bytes = 0;
    for (const Shard& shard : shards_) {
      bytes += shard.numel * static_cast<int64_t>(c10::elementSize(shard.dtype));
    }
    return device_.is_cpu() ? StoreBytes{.host = bytes} : StoreBytes{.device = bytes};
  }

  std::vector<std::string> notes() const override { return notes_(); }

 private:
  struct Shard {
    int64_t numel;
    torch::Dtype dtype;
    torch::Tensor values;  // from the first borrow on: a run that only evaluates has no moments
  };

  torch::Device device_;
  Zeros zeros_;
  Notes notes_;
  std::vector<Shard> shards_;
};

}  // namespace

std::unique_ptr<ShardStore> make_memory_store(torch::Device device) {
  return std::make_unique<MemoryStore>(
      device,
      [device](int64_t numel, torch::Dtype dtype) {
        return torch::zeros({numel}, torch::TensorOptions(device).dtype(dtype));
      },
      [] { return std::vector<std::string>(); });
}

std::unique_ptr<ShardStore> make_host_store(std::shared_ptr<device::HostLink> link) {
  const auto memory =
      std::make_shared<device::HostMemory>(link ? link->memory : device::HostMemory());
  return std::make_unique<MemoryStore>(
      torch::kCPU,
      [memory](int64_t numel, torch::Dtype dtype) { return memory->zeros(numel, dtype); },
      [memory] { return memory->notes(); });
}

}  // namespace zeroth::offload
