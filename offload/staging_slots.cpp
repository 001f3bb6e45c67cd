#include "offload/staging_slots.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace zeroth::offload {

StagingSlots::StagingSlots(device::HostLink& link, torch::Device device, size_t most)
    : link_(link), device_(device), most_(most) {}

torch::Tensor StagingSlots::Slot::view(int64_t numel, torch::Dtype dtype) const {
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  return memory.narrow(0, 0, bytes).view(dtype);
}

StagingSlots::Slot StagingSlots::take(int64_t bytes) {
  constexpr int64_t kTooSmall = std::numeric_limits<int64_t>::max();
  const auto size = [bytes](const Slot& slot) {
    return slot.memory.numel() < bytes ? kTooSmall : slot.memory.numel();
  };
  const auto best = std::ranges::min_element(free_, {}, size);
  const bool fits = best != free_.end() && size(*best) < kTooSmall;
  const bool may_grow = count_ < most_;
  if (fits && (!may_grow || link_.copies->reached(best->free))) {
    Slot slot = std::move(*best);
    free_.erase(best);
    return slot;
  }
  if (!free_.empty() && !may_grow) {
    link_.copies->wait(free_.front().free);
    bytes_ -= free_.front().memory.numel();
    --count_;
    free_.pop_front();
  }
  return make(std::max(bytes, least_));
}

StagingSlots::Slot StagingSlots::make(int64_t bytes) {
  ++count_;
  bytes_ += bytes;
  if (device_.is_cpu()) return {link_.memory.zeros(bytes, torch::kByte), {}};
  Slot slot{torch::empty({bytes}, torch::TensorOptions(device_).dtype(torch::kByte)), {}};
  slot.free = link_.copies->now();  // the allocator's memory may be in use by earlier work
  return slot;
}

}  // namespace zeroth::offload
