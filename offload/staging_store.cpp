#include "offload/staging_store.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "offload/staging_buffers.h"

namespace zeroth::offload {
namespace {

// Two uses of a tile may be there at once when both only read.
struct Use {
  Tile tile;
  Access access;

  bool operator==(const Use&) const = default;
  bool clashes(const Use& other) const {
    return tile.shard == other.tile.shard && tile.begin < other.tile.end &&
           other.tile.begin < tile.end &&
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

  void expect(std::vector<Tile> tiles) override {
    for (const Tile& tile : tiles) {
      buffers_.expect((tile.end - tile.begin) * element_sizes_.at(tile.shard));
    }
    expected_.assign(tiles.begin(), tiles.end());
    inner_->expect(std::move(tiles));
    drop_ahead([this](const Held& held) {
      const auto found = std::find(expected_.begin(), expected_.end(), held.tile);
      if (found == expected_.end()) return true;
      expected_.erase(found);
      return false;
    });
    read_ahead();
  }

  TileLease borrow(const Tile& tile, torch::Device device, Access access) override {
    TileLease lease = lend({tile, access}, device);
    lease.order();
    return lease;
  }

  TileLease borrow_ahead(const Tile& tile, torch::Device device) override {
    return lend({tile, Access::kRead}, device);
  }

  void settle() override {
    while (!ending_.empty()) end_oldest();
    failure_.rethrow();
    inner_->settle();
  }

  StoreBytes bytes() const override {
    StoreBytes bytes = inner_->bytes();
    (device_.is_cpu() ? bytes.host : bytes.device) += buffers_.bytes();
    return bytes;
  }

  Traffic traffic() const override { return inner_->traffic(); }

  std::vector<std::string> notes() const override { return inner_->notes(); }

 private:
  struct Held : Use {               // a tile on the device, with the access of its inner lease
    TileLease inner;                // none when it only reads: see Ending
    StagingBuffers::Buffer buffer;  // free: the copy back of what was written before, if any
    device::Point arrived;          // the buffer may be used behind it
    bool ordered = false;           // the current stream was, behind `arrived`
  };
  struct Ending : Use {  // the inner lease goes back when the last copy from or to it has ended
    TileLease inner;
    device::Point end;
  };

  device::CopyStream& copies() { return buffers_.copies(); }
  size_t inner_leases() const { return inner_held_ + ending_.size(); }

  TileLease lend(const Use& use, torch::Device device) {
    failure_.rethrow();
    while (!ending_.empty() && copies().reached(ending_.front().end)) ending_.pop_front();
    if (device == torch::Device(torch::kCPU)) return borrow_on_host(use);
    ZEROTH_CHECK(device == device_, "shards are staged for {}, asked for {}", device_.str(),
                 device.str());
    const auto held = std::make_shared<Held>(take(use));
    const auto last = std::find(expected_.begin(), expected_.end(), use.tile);
    if (last != expected_.end()) expected_.erase(expected_.begin(), last + 1);
    leased_.push_back(use);
    read_ahead();
    const auto release = [this, held, access = use.access] {
      leased_.erase(std::find(leased_.begin(), leased_.end(), Use{held->tile, access}));
      failure_.guard([&] { end_lease(*held, access); });
    };
    return TileLease(held->buffer.values, release, [this, held] { order(*held); });
  }

  void order(Held& held) {
    if (!std::exchange(held.ordered, true)) copies().order(held.arrived);
  }

  Held take(const Use& use) {
    if (written_ && written_->tile == use.tile && use.access == Access::kRead) {
      return *std::exchange(written_, std::nullopt);
    }
    forget_written();
    const auto ready = std::find_if(ahead_.begin(), ahead_.end(),
                                    [&](const Held& held) { return held.tile == use.tile; });
    if (ready != ahead_.end() && (use.access == Access::kRead || ready->access != Access::kRead)) {
      Held held = std::move(*ready);
      ahead_.erase(ready);
      return held;
    }
    make_way(use);
    return fetch(use);
  }

  void forget_written() {
    if (written_) buffers_.give(std::move(written_->buffer));
    written_.reset();
  }

  Held fetch(const Use& use) {
    Held held{use, inner_->borrow(use.tile, torch::kCPU, use.access), {}, {}, false};
    const torch::Tensor resting = held.inner.tensor();
    held.buffer =
        use.access == Access::kWrite ? buffers_.take(resting) : buffers_.fetch(resting, {});
    held.arrived = std::exchange(held.buffer.free, {});
    if (use.access == Access::kRead) {
      ending_.push_back({use, std::move(held.inner), held.arrived});
    } else {
      ++inner_held_;
    }
    return held;
  }

  void end_lease(Held& held, Access access) {
    order(held);
    copies().order(held.buffer.free);
    const device::Point used = copies().now();
    if (access == Access::kRead) return give_back(held, held.arrived, used);
    buffers_.send(held.buffer, held.inner.tensor(), used);
    end_inner(held, held.buffer.free);
    if (options_.expected != Access::kRead) return buffers_.give(std::move(held.buffer));
    forget_written();
    written_ = Held{{held.tile, Access::kRead}, {}, std::move(held.buffer), used, false};
  }

  // Of a tile that was not written: `end` of the last copy from it, `used` behind which the buffer
  // is free.
  void give_back(Held& held, const device::Point& end, const device::Point& used) {
    end_inner(held, end);
    held.buffer.free = used;
    buffers_.give(std::move(held.buffer));
  }

  void end_inner(Held& held, const device::Point& end) {
    if (held.access == Access::kRead) return;
    --inner_held_;
    ending_.push_back({held, std::move(held.inner), end});
  }

  template <typename Unwanted>
  void drop_ahead(Unwanted&& unwanted) {
    for (auto held = ahead_.begin(); held != ahead_.end();) {
      if (!unwanted(*held)) {
        ++held;
        continue;
      }
      give_back(*held, held->arrived, held->arrived);
      held = ahead_.erase(held);
    }
  }

  // So that the inner store may lend the tile: what was copied ahead of it goes, and is expected
  // once more; copies from and to it end, and others until there is a lease to spare.
  void make_way(const Use& use) {
    drop_ahead([&](const Held& held) {
      if (held.clashes(use)) expected_.push_front(held.tile);
      return held.clashes(use);
    });
    for (const Ending& ending : ending_) {
      if (ending.clashes(use)) copies().wait(ending.end);
    }
    std::erase_if(ending_, [&](const Ending& ending) { return ending.clashes(use); });
    while (inner_leases() >= options_.inner_leases && !ending_.empty()) end_oldest();
  }

  TileLease borrow_on_host(const Use& use) {
    forget_written();
    make_way(use);
    const auto inner =
        std::make_shared<TileLease>(inner_->borrow(use.tile, torch::kCPU, use.access));
    leased_.push_back(use);
    return TileLease(inner->tensor(), [this, inner, use] {
      *inner = TileLease();
      leased_.erase(std::find(leased_.begin(), leased_.end(), use));
      read_ahead();
    });
  }

  // Copies the next tiles to the device as far as that blocks nobody; what goes wrong is told by
  // the next borrow().
  void read_ahead() {
    failure_.guard([this] {
      while (ahead_.size() < options_.depth && !expected_.empty()) {
        const Use use = {expected_.front(), options_.expected};
        const auto clash = [&](const auto& others) {
          return std::any_of(others.begin(), others.end(),
                             [&](const Use& other) { return other.clashes(use); });
        };
        if (clash(leased_) || clash(ahead_) || clash(ending_) ||
            inner_leases() + 1 >= options_.inner_leases || !inner_->ready(use.tile)) {
          return;
        }
        expected_.pop_front();
        ahead_.push_back(fetch(use));
      }
    });
  }

  void end_oldest() {
    copies().wait(ending_.front().end);
    ending_.pop_front();
  }

  std::unique_ptr<ShardStore> inner_;
  torch::Device device_;
  StagingOptions options_;
  std::vector<int64_t> element_sizes_;  // [shard]
  std::deque<Tile> expected_;
  std::vector<Held> ahead_;
  std::optional<Held> written_;  // by the last lease, where reads are expected
  std::vector<Use> leased_;      // on the device and on the host
  std::deque<Ending> ending_;
  size_t inner_held_ = 0;  // inner leases in ahead_ and with those that may write on the device
  KeptFailure failure_;
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
