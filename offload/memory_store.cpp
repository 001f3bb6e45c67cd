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
  // Stores shards in `host` memory, or in memory that LibTorch allocates on `device` without it.
  explicit MemoryStore(torch::Device device, std::optional<device::HostMemory> host = {})
      : device_(device), host_(std::move(host)) {}

  size_t add(int64_t numel, torch::Dtype dtype) override {
    shards_.push_back({numel, dtype, {}});
    return shards_.size() - 1;
  }

  void prefetch(std::vector<ShardChunk>) override {}

  ChunkLease acquire(const ShardChunk& chunk, torch::Device device, Access) override {
    ZEROTH_CHECK(device == device_, "shards are on {}, requested on {}", device_.str(),
                 device.str());
    ZEROTH_CHECK(chunk.shard < shards_.size(), "shard {} of {}", chunk.shard, shards_.size());
    MemoryShard& shard = shards_[chunk.shard];
    ZEROTH_CHECK(0 <= chunk.begin && chunk.begin <= chunk.end && chunk.end <= shard.numel,
                 "chunk [{}, {}) of a shard of {}", chunk.begin, chunk.end, shard.numel);
    return ChunkLease(values(shard).narrow(0, chunk.begin, chunk.end - chunk.begin));
  }

  torch::Tensor in_place(size_t shard) override {
    return device_.is_cpu() ? values(shards_.at(shard)) : torch::Tensor();
  }

  void flush() override {}

  StoreBytes bytes() const override {
    int64_t bytes = 0;
    for (const MemoryShard& shard : shards_) {
      bytes += shard.numel * static_cast<int64_t>(c10::elementSize(shard.dtype));
    }
    return device_.is_cpu() ? StoreBytes{.host = bytes} : StoreBytes{.device = bytes};
  }

  std::vector<std::string> notes() const override {
    return host_ ? host_->notes() : std::vector<std::string>();
  }

 private:
  struct MemoryShard {
    int64_t numel;
    torch::Dtype dtype;
    torch::Tensor values;  // allocated at first acquire: a run that only evaluates has no moments
  };

  const torch::Tensor& values(MemoryShard& shard) {
    if (shard.values.defined()) return shard.values;
    const auto options = torch::TensorOptions(device_).dtype(shard.dtype);
    return shard.values =
               host_ ? host_->zeros(shard.numel, shard.dtype) : at::zeros({shard.numel}, options);
  }

  torch::Device device_;
  std::optional<device::HostMemory> host_;
  std::vector<MemoryShard> shards_;
};

}  // namespace

std::unique_ptr<ShardStore> make_memory_store(torch::Device device) {
  return std::make_unique<MemoryStore>(device);
}

std::unique_ptr<ShardStore> make_cpu_store(std::shared_ptr<device::HostLink> link) {
  return std::make_unique<MemoryStore>(torch::kCPU, link ? link->memory : device::HostMemory());
}

}  // namespace zeroth::offload
