// Where reduced gradients come to rest on the host while backward goes on.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "offload/host_link.h"
#include "offload/staging_slots.h"

namespace zeroth::zero {

// Gradients cross the link once, in the dtype in which they crossed the ranks. Where that is also
// the shard's dtype and there is nothing to add to, they land in the shard itself; else in one of a
// few buffers, from which the host adds them when they have come. Sums have the order, and the
// bits, of those on a device.
class GradLanding {
 public:
  struct Options {
    int64_t piece_bytes = int64_t{16} << 20;  // what is not copied into a shard itself is cut
    size_t buffers = 4;                       // of a piece each
  };

  explicit GradLanding(std::shared_ptr<offload::HostLink> link);
  GradLanding(std::shared_ptr<offload::HostLink> link, const Options& options);

  // Host memory for a shard, zeros.
  torch::Tensor shard(int64_t numel, torch::Dtype dtype) {
    return link_->memory.zeros(numel, dtype);
  }

  // Starts to copy `from`, of the device, to `to`, or to add it; behind what the current stream
  // holds by now and what lands before. `to` has the result after finish(). Returns the point from
  // which `from` is free. Blocks while all buffers are taken: the host is ahead of the device then.
  offload::Point land(const torch::Tensor& from, const torch::Tensor& to, bool add);
  // The current stream goes on behind `point`; the host does not wait.
  void order(const offload::Point& point) { link_->copies->order(point); }
  // Waits until all has landed.
  void finish();

  int64_t buffer_bytes() const { return slots_.bytes(); }

 private:
  // A piece on its way. Without a slot it lands in place.
  struct Arrival {
    offload::Point end;
    offload::StagingSlots::Slot slot = {};
    torch::Tensor values = {};  // in the slot
    torch::Tensor to = {};
    bool add = false;
  };

  offload::Point land_piece(const torch::Tensor& from, const torch::Tensor& to, bool add,
                            const offload::Point& after);
  void take_in_oldest();

  std::shared_ptr<offload::HostLink> link_;
  Options options_;
  offload::StagingSlots slots_;
  std::deque<Arrival> arrivals_;
  size_t slots_taken_ = 0;
};

}  // namespace zeroth::zero
