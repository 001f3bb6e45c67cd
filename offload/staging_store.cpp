#include "offload/staging_store.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "offload/staging_slots.h"

namespace zeroth::offload {
namespace {

bool overlap(const Tile& a, const Tile& b) {
  return a.shard == b.shard && a.begin < b.end && b.begin < a.end;
}

// Two leases of a tile may be there at once when both only read.
bool may_share(Access a, Access b) {
  return a == Access::kRead && b == Access::kRead;
}

class StagingStore final : public ShardStore {
 public:
  StagingStore(std::unique_ptr<ShardStore> inner, std::shared_ptr<device::HostLink> link,
               torch::Device device, const StagingOptions& options)
      : inner_(std::move(inner)),
        link_(std::move(link)),
        device_(device),
        options_(options),
        slots_(*link_, device, options.depth) {}

  ~StagingStore() override { link_->copies->drain(); }

  size_t add(int64_t numel, torch::Dtype dtype) override {
    element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(dtype)));
    return inner_->add(numel, dtype);
  }

  void expect(std::vector<Tile> tiles) override {
    for (const Tile& tile : tiles) {
      slots_.expect((tile.end - tile.begin) * element_sizes_.at(tile.shard));
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
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    while (!ending_.empty() && copies().reached(ending_.front().end)) ending_.pop_front();
    if (device == torch::Device(torch::kCPU)) return borrow_on_host(tile, access);
    ZEROTH_CHECK(device == device_, "shards are staged for {}, asked for {}", device_.str(),
                 device.str());
    const auto held = std::make_shared<Held>(take(tile, access));
    const auto last = std::find(expected_.begin(), expected_.end(), tile);
    if (last != expected_.end()) expected_.erase(expected_.begin(), last + 1);
    copies().order(held->arrived);
    leased_.push_back({tile, access});
    read_ahead();
    return TileLease(held->values, [this, held, access] { end_lease(*held, access); });
  }

  void settle() override {
    while (!ending_.empty()) end_oldest();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    inner_->settle();
  }

  StoreBytes bytes() const override {
    StoreBytes bytes = inner_->bytes();
    (device_.is_cpu() ? bytes.host : bytes.device) += slots_.bytes();
    return bytes;
  }

  Traffic traffic() const override { return inner_->traffic(); }

  std::vector<std::string> notes() const override { return inner_->notes(); }

 private:
  struct Held {  // a tile on the device
    Tile tile;
    Access access;            // of the inner lease
    TileLease inner;          // none when it only reads: that goes back when the copy has ended
    StagingSlots::Slot slot;  // free: the copy back of what was written before, if there is one
    torch::Tensor values;     // in the slot
    device::Point arrived;    // the slot may be used behind it
  };
  struct Leased {
    Tile tile;
    Access access;
  };
  struct Ending {  // the inner lease goes back when the last copy from or to it has ended
    Tile tile;
    Access access;
    TileLease inner;
    device::Point end;
  };

  device::CopyStream& copies() { return *link_->copies; }
  size_t inner_leases() const { return inner_held_ + ending_.size(); }

  Held take(const Tile& tile, Access access) {
    if (written_ && written_->tile == tile && access == Access::kRead) {
      return *std::exchange(written_, std::nullopt);
    }
    forget_written();
    const auto ready = std::find_if(ahead_.begin(), ahead_.end(),
                                    [&](const Held& held) { return held.tile == tile; });
    if (ready != ahead_.end() && (access == Access::kRead || ready->access != Access::kRead)) {
      Held held = std::move(*ready);
      ahead_.erase(ready);
      return held;
    }
    make_way(tile, access);
    return fetch(tile, access);
  }

  void forget_written() {
    if (written_) slots_.give(std::move(written_->slot));
    written_.reset();
  }

  Held fetch(const Tile& tile, Access access) {
    Held held{tile, access, inner_->borrow(tile, torch::kCPU, access), {}, {}, {}};
    const torch::Tensor resting = held.inner.tensor();
    held.slot = slots_.take(static_cast<int64_t>(resting.nbytes()));
    held.values = held.slot.view(resting.numel(), resting.scalar_type());
    held.arrived = held.slot.free;
    if (access != Access::kWrite) {
      held.arrived = copies().copy(held.values, resting, {held.slot.free});
    }
    held.slot.free = {};
    if (access == Access::kRead) {
      ending_.push_back({tile, access, std::move(held.inner), held.arrived});
    } else {
      ++inner_held_;
    }
    return held;
  }

  void end_lease(Held& held, Access access) {
    no_longer_leased(held.tile, access);
    try {
      copies().order(held.slot.free);
      const device::Point used = copies().now();
      if (access == Access::kRead) {
        held.slot.free = used;
        end_inner(held, held.arrived);
        return slots_.give(std::move(held.slot));
      }
      held.slot.free = copies().copy(held.inner.tensor(), held.values, {used});
      end_inner(held, held.slot.free);
      if (options_.expected != Access::kRead) return slots_.give(std::move(held.slot));
      forget_written();
      written_ = Held{held.tile, Access::kRead, {}, std::move(held.slot), held.values, used};
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  // Others may still read the same tile.
  void no_longer_leased(const Tile& tile, Access access) {
    leased_.erase(std::find_if(leased_.begin(), leased_.end(), [&](const Leased& leased) {
      return leased.tile == tile && leased.access == access;
    }));
  }

  void end_inner(Held& held, const device::Point& end) {
    if (held.access == Access::kRead) return;
    --inner_held_;
    ending_.push_back({held.tile, held.access, std::move(held.inner), end});
  }

  template <typename Unwanted>
  void drop_ahead(Unwanted&& unwanted) {
    for (size_t i = 0; i < ahead_.size();) {
      if (!unwanted(ahead_[i])) {
        ++i;
        continue;
      }
      Held held = std::move(ahead_[i]);
      ahead_.erase(ahead_.begin() + static_cast<ptrdiff_t>(i));
      held.slot.free = held.arrived;
      end_inner(held, held.arrived);
      slots_.give(std::move(held.slot));
    }
  }

  // So that the inner store may lend the tile: what was copied ahead of it goes, and is expected
  // once more; copies from and to it end, and others until there is a lease to spare.
  void make_way(const Tile& tile, Access access) {
    const auto in_the_way = [&](const auto& other) {
      return overlap(other.tile, tile) && !may_share(other.access, access);
    };
    drop_ahead([&](const Held& held) {
      if (in_the_way(held)) expected_.push_front(held.tile);
      return in_the_way(held);
    });
    for (size_t i = 0; i < ending_.size();) {
      if (!in_the_way(ending_[i])) {
        ++i;
        continue;
      }
      copies().wait(ending_[i].end);
      ending_.erase(ending_.begin() + static_cast<ptrdiff_t>(i));
    }
    while (inner_leases() >= options_.inner_leases && !ending_.empty()) end_oldest();
  }

  TileLease borrow_on_host(const Tile& tile, Access access) {
    forget_written();
    make_way(tile, access);
    const auto inner = std::make_shared<TileLease>(inner_->borrow(tile, torch::kCPU, access));
    leased_.push_back({tile, access});
    return TileLease(inner->tensor(), [this, inner, tile, access] {
      *inner = TileLease();
      no_longer_leased(tile, access);
      read_ahead();
    });
  }

  // Copies the next tiles to the device as far as that blocks nobody; what goes wrong is told by
  // the next borrow().
  void read_ahead() {
    try {
      while (ahead_.size() < options_.depth && !expected_.empty()) {
        const Tile tile = expected_.front();
        const auto in_the_way = [&](const auto& other) {
          return overlap(other.tile, tile) && !may_share(other.access, options_.expected);
        };
        if (std::any_of(leased_.begin(), leased_.end(), in_the_way) ||
            std::any_of(ahead_.begin(), ahead_.end(), in_the_way) ||
            std::any_of(ending_.begin(), ending_.end(), in_the_way) ||
            inner_leases() + 1 >= options_.inner_leases || !inner_->ready(tile)) {
          return;
        }
        expected_.pop_front();
        ahead_.push_back(fetch(tile, options_.expected));
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void end_oldest() {
    copies().wait(ending_.front().end);
    ending_.pop_front();
  }

  std::unique_ptr<ShardStore> inner_;
  std::shared_ptr<device::HostLink> link_;
  torch::Device device_;
  StagingOptions options_;
  StagingSlots slots_;
  std::vector<int64_t> element_sizes_;  // [shard]
  std::deque<Tile> expected_;
  std::vector<Held> ahead_;
  std::optional<Held> written_;  // by the last lease, where reads are expected
  std::vector<Leased> leased_;   // on the device and on the host
  std::deque<Ending> ending_;
  size_t inner_held_ = 0;  // inner leases in ahead_ and with those that may write on the device
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<ShardStore> make_staging_store(std::unique_ptr<ShardStore> inner,
                                               std::shared_ptr<device::HostLink> link,
                                               torch::Device device,
                                               const StagingOptions& options) {
  return std::make_unique<StagingStore>(std::move(inner), std::move(link), device, options);
}

}  // namespace zeroth::offload
