// A resting place that remembers which tiles it was told to expect, and can fail.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/shard_store.h"

namespace zeroth::zero {

class FakeStore final : public offload::ShardStore {
 public:
  size_t add(int64_t numel, torch::Dtype dtype) override { return memory_->add(numel, dtype); }
  void prefetch(std::vector<offload::ShardChunk> chunks) override { expected = std::move(chunks); }
  offload::ChunkLease acquire(const offload::ShardChunk& chunk, torch::Device device,
                              offload::Access access) override {
    if (fails_in-- == 0) throw Error("the test says no");
    return memory_->acquire(chunk, device, access);
  }
  void flush() override {}
  offload::StoreBytes bytes() const override { return memory_->bytes(); }

  std::vector<offload::ShardChunk> expected;
  int fails_in = -1;  // so many borrows succeed, the next fails; negative: all succeed

 private:
  std::unique_ptr<offload::ShardStore> memory_ = offload::make_memory_store(torch::kCPU);
};

}  // namespace zeroth::zero
