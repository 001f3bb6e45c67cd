// Buffers of one place that copies pass through, each used again when its last copy is behind it.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <deque>

#include "device/host_link.h"

namespace zeroth::offload {

class StagingSlots {
 public:
  // Slots on `device`, or in the link's host memory. While a slot that is free is still waited for,
  // up to `most` are made before it is taken again. Keeps a reference to `link`.
  StagingSlots(device::HostLink& link, torch::Device device, size_t most);
  // Waits for the link's copies.
  ~StagingSlots() { link_.copies->drain(); }
  StagingSlots(const StagingSlots&) = delete;
  StagingSlots& operator=(const StagingSlots&) = delete;

  struct Slot {
    torch::Tensor memory;  // [bytes] uint8
    device::Point free;    // until then an earlier user is at it: copy behind it, or wait or order

    torch::Tensor view(int64_t numel, torch::Dtype dtype) const;
  };

  // Slots made from now on have at least so many bytes: who knows the largest that will be asked
  // for spares the wait for a small one that has to be replaced.
  void expect(int64_t bytes) { least_ = std::max(least_, bytes); }

  // At least `bytes` bytes: of the free slots the smallest that has them. Blocks only where all
  // are too small and one is replaced, until that one is free.
  Slot take(int64_t bytes);
  void give(Slot slot) { free_.push_back(std::move(slot)); }

  int64_t bytes() const { return bytes_; }  // of all slots, taken ones included
  size_t count() const { return count_; }

 private:
  Slot make(int64_t bytes);

  device::HostLink& link_;
  torch::Device device_;
  size_t most_;
  std::deque<Slot> free_;  // in the order in which they were given back
  size_t count_ = 0;
  int64_t bytes_ = 0;
  int64_t least_ = 0;  // of a slot that is made
};

}  // namespace zeroth::offload
