#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "offload/shard_store.h"
#include "offload/staging.h"

namespace zeroth::offload {
namespace {

// A ChunkUse is one access to a chunk. Two uses can overlap if both only read.
struct ChunkUse {
  ShardChunk chunk;
  Access access;

  bool operator==(const ChunkUse&) const = default;
  bool conflicts_with(const ChunkUse& other) const {
    return chunk.shard == other.chunk.shard && chunk.begin < other.chunk.end &&
           other.chunk.begin < chunk.end &&
           (access != Access::kRead || other.access != Access::kRead);
  }
};

class StagingStore final : public ShardStore {
 public:
  StagingStore(std::unique_ptr<ShardStore> inner, std::shared_ptr<device::HostLink> link,
               torch::Device device, const StagingOptions& options)
      : inner_(std::move(inner)),
        device_(device),
        options_(options),
        buffers_(std::move(link), device, options.depth) {}

  size_t add(int64_t numel, torch::Dtype dtype) override {
    element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(dtype)));
    return inner_->add(numel, dtype);
  }

  void prefetch(std::vector<ShardChunk> chunks) override {
    for (const ShardChunk& chunk : chunks) {
      buffers_.reserve((chunk.end - chunk.begin) * element_sizes_.at(chunk.shard));
    }
    prefetch_queue_.assign(chunks.begin(), chunks.end());
    inner_->prefetch(std::move(chunks));
    drop_prefetched([this](const StagedChunk& held) {
      const auto found = std::find(prefetch_queue_.begin(), prefetch_queue_.end(), held.chunk);
      if (found == prefetch_queue_.end()) return true;
      prefetch_queue_.erase(found);
      return false;
    });
    read_ahead();
  }

  ChunkLease acquire(const ShardChunk& chunk, torch::Device device, Access access) override {
    ChunkLease lease = acquire_lease({chunk, access}, device);
    lease.block_current_stream();
    return lease;
  }

  ChunkLease acquire_async(const ShardChunk& chunk, torch::Device device) override {
    return acquire_lease({chunk, Access::kRead}, device);
  }

  void flush() override {
    while (!pending_releases_.empty()) release_oldest();
    failure_.rethrow();
    inner_->flush();
  }

  StoreBytes bytes() const override {
    StoreBytes bytes = inner_->bytes();
    (device_.is_cpu() ? bytes.host : bytes.device) += buffers_.bytes();
    return bytes;
  }

  Traffic traffic() const override { return inner_->traffic(); }

  std::vector<std::string> notes() const override { return inner_->notes(); }

 private:
  struct StagedChunk : ChunkUse {   // a chunk on the device, with the access of its inner lease
    ChunkLease inner;               // empty if it only reads: see PendingRelease
    StagingBuffers::Buffer buffer;  // its free event is the copy back of an earlier write, if any
    device::StreamEvent arrived;    // event after which the buffer can be used
    bool ordered = false;           // whether the current stream waits for `arrived`
  };
  // A PendingRelease keeps the inner lease until the last copy from or to it has ended.
  struct PendingRelease : ChunkUse {
    ChunkLease inner;
    device::StreamEvent end;
  };

  device::CopyStream& copies() { return buffers_.copies(); }
  size_t inner_leases() const { return inner_held_ + pending_releases_.size(); }

  ChunkLease acquire_lease(const ChunkUse& use, torch::Device device) {
    failure_.rethrow();
    while (!pending_releases_.empty() && copies().is_complete(pending_releases_.front().end))
      pending_releases_.pop_front();
    if (device == torch::Device(torch::kCPU)) return acquire_on_cpu(use);
    ZEROTH_CHECK(device == device_, "shards are staged for {}, requested on {}", device_.str(),
                 device.str());
    const auto held = std::make_shared<StagedChunk>(stage(use));
    const auto last = std::find(prefetch_queue_.begin(), prefetch_queue_.end(), use.chunk);
    if (last != prefetch_queue_.end()) prefetch_queue_.erase(prefetch_queue_.begin(), last + 1);
    leased_.push_back(use);
    read_ahead();
    const auto release = [this, held, access = use.access](void*) {
      leased_.erase(std::find(leased_.begin(), leased_.end(), ChunkUse{held->chunk, access}));
      failure_.guard([&] { end_lease(*held, access); });
    };
    return ChunkLease(held->buffer.values, {nullptr, release},
                      [this, held] { wait_for_copy(*held); });
  }

  void wait_for_copy(StagedChunk& held) {
    if (!std::exchange(held.ordered, true)) copies().wait_event(held.arrived);
  }

  StagedChunk stage(const ChunkUse& use) {
    if (written_ && written_->chunk == use.chunk && use.access == Access::kRead) {
      return *std::exchange(written_, std::nullopt);
    }
    drop_written();
    const auto ready = std::ranges::find(prefetched_, use.chunk, &StagedChunk::chunk);
    if (ready != prefetched_.end() &&
        (use.access == Access::kRead || ready->access != Access::kRead)) {
      StagedChunk held = std::move(*ready);
      prefetched_.erase(ready);
      return held;
    }
    release_conflicts(use);
    return fetch(use);
  }

  void drop_written() {
    if (written_) buffers_.release(std::move(written_->buffer));
    written_.reset();
  }

  StagedChunk fetch(const ChunkUse& use) {
    StagedChunk held{use, inner_->acquire(use.chunk, torch::kCPU, use.access), {}, {}, false};
    const torch::Tensor stored = held.inner.tensor();
    held.buffer =
        use.access == Access::kWrite ? buffers_.acquire(stored) : buffers_.fetch(stored, {});
    held.arrived = std::exchange(held.buffer.free, {});
    if (use.access == Access::kRead) {
      pending_releases_.push_back({use, std::move(held.inner), held.arrived});
    } else {
      ++inner_held_;
    }
    return held;
  }

  void end_lease(StagedChunk& held, Access access) {
    wait_for_copy(held);
    copies().wait_event(held.buffer.free);
    const device::StreamEvent used = copies().record_event();
    if (access == Access::kRead) return release_buffer(held, held.arrived, used);
    buffers_.send(held.buffer, held.inner.tensor(), used);
    release_inner(held, held.buffer.free);
    if (options_.expected != Access::kRead) return buffers_.release(std::move(held.buffer));
    drop_written();
    written_ = StagedChunk{{held.chunk, Access::kRead}, {}, std::move(held.buffer), used, false};
  }

  // Releases the buffer of a chunk that was not written. `end` is the end of the last copy from the
  // inner lease; the buffer is free after `used`.
  void release_buffer(StagedChunk& held, const device::StreamEvent& end,
                      const device::StreamEvent& used) {
    release_inner(held, end);
    held.buffer.free = used;
    buffers_.release(std::move(held.buffer));
  }

  void release_inner(StagedChunk& held, const device::StreamEvent& end) {
    if (held.access == Access::kRead) return;
    --inner_held_;
    pending_releases_.push_back({held, std::move(held.inner), end});
  }

  template <typename ShouldDrop>
  void drop_prefetched(ShouldDrop&& should_drop) {
    for (auto held = prefetched_.begin(); held != prefetched_.end();) {
      if (!should_drop(*held)) {
        ++held;
        continue;
      }
      release_buffer(*held, held->arrived, held->arrived);
      held = prefetched_.erase(held);
    }
  }

  // Makes the chunk available in the inner store. Drops its prefetched copies, which are queued
  // again; waits for copies from and to it, and for others until an inner lease is available.
  void release_conflicts(const ChunkUse& use) {
    drop_prefetched([&](const StagedChunk& held) {
      if (held.conflicts_with(use)) prefetch_queue_.push_front(held.chunk);
      return held.conflicts_with(use);
    });
    for (const PendingRelease& pending : pending_releases_) {
      if (pending.conflicts_with(use)) copies().wait(pending.end);
    }
    std::erase_if(pending_releases_,
                  [&](const PendingRelease& pending) { return pending.conflicts_with(use); });
    while (inner_leases() >= options_.inner_leases && !pending_releases_.empty()) release_oldest();
  }

  ChunkLease acquire_on_cpu(const ChunkUse& use) {
    drop_written();
    release_conflicts(use);
    const auto inner =
        std::make_shared<ChunkLease>(inner_->acquire(use.chunk, torch::kCPU, use.access));
    leased_.push_back(use);
    const auto release = [this, inner, use](void*) {
      *inner = ChunkLease();
      leased_.erase(std::find(leased_.begin(), leased_.end(), use));
      read_ahead();
    };
    return ChunkLease(inner->tensor(), {nullptr, release});
  }

  // Copies the next chunks to the device as far as that does not block. The next acquire() throws
  // any failure.
  void read_ahead() {
    failure_.guard([this] {
      while (prefetched_.size() < options_.depth && !prefetch_queue_.empty()) {
        const ChunkUse use = {prefetch_queue_.front(), options_.expected};
        const auto conflicts = [&](const auto& others) {
          return std::ranges::any_of(
              others, [&](const ChunkUse& other) { return other.conflicts_with(use); });
        };
        if (conflicts(leased_) || conflicts(prefetched_) || conflicts(pending_releases_) ||
            inner_leases() + 1 >= options_.inner_leases || !inner_->ready(use.chunk)) {
          return;
        }
        prefetch_queue_.pop_front();
        prefetched_.push_back(fetch(use));
      }
    });
  }

  void release_oldest() {
    copies().wait(pending_releases_.front().end);
    pending_releases_.pop_front();
  }

  std::unique_ptr<ShardStore> inner_;
  torch::Device device_;
  StagingOptions options_;
  std::vector<int64_t> element_sizes_;  // [shard]
  std::deque<ShardChunk> prefetch_queue_;
  std::vector<StagedChunk> prefetched_;
  std::optional<StagedChunk> written_;  // by the last lease, if reads are expected
  std::vector<ChunkUse> leased_;        // on the device and on the CPU
  std::deque<PendingRelease> pending_releases_;
  // Number of inner leases in prefetched_ and with leases that can write on the device.
  size_t inner_held_ = 0;
  DeferredError failure_;
  StagingBuffers buffers_;
};

}  // namespace

std::unique_ptr<ShardStore> make_staging_store(std::unique_ptr<ShardStore> inner,
                                               std::shared_ptr<device::HostLink> link,
                                               torch::Device device,
                                               const StagingOptions& options) {
  return std::make_unique<StagingStore>(std::move(inner), std::move(link), device, options);
}

}  // namespace zeroth::offload
