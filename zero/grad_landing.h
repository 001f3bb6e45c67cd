// Where reduced gradients come to rest on the host while backward goes on.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device/host_link.h"
#include "offload/staging_slots.h"

namespace zeroth::zero {

// Gradients cross the link once, in the dtype in which they crossed the ranks. Where that is also
// the shard's dtype and there is nothing to add to, they land in the shard itself; else in buffers,
// from which the host adds them when they have come. Sums have the order, and the bits, of those on
// a device.
class GradLanding {
 public:
  struct Options {
    int64_t piece_bytes = int64_t{16} << 20;  // of a buffer: what passes through one is cut
    torch::Device host = torch::kCPU;         // kMeta: only counts what landing takes
  };

  explicit GradLanding(std::shared_ptr<device::HostLink> link);
  GradLanding(std::shared_ptr<device::HostLink> link, const Options& options);
  // Waits for what is under way: the memory of both its ends stays until then.
  ~GradLanding() { link_->copies->drain(); }
  GradLanding(const GradLanding&) = delete;
  GradLanding& operator=(const GradLanding&) = delete;

  // Host memory for a shard, zeros.
  torch::Tensor shard(int64_t numel, torch::Dtype dtype);

  // The next gradient begins to land. Buffers hold two, so this waits until all before the last one
  // have been added. What the device has been given since then is left to it meanwhile.
  void begin();
  // Starts to copy `from`, of the device, to `to`, or to add it; behind `after`. `to` has the
  // result after finish(). Returns the point from which `from` is free. Waits for nothing, but adds
  // what has come.
  device::Point land(const torch::Tensor& from, const torch::Tensor& to, bool add,
                     const device::Point& after);
  // Waits until all has landed.
  void finish();

  device::CopyStream& copies() const { return *link_->copies; }
  int64_t shard_bytes() const { return shard_bytes_; }
  int64_t buffer_bytes() const { return slots_.bytes(); }

 private:
  // A piece on its way.
  struct Arrival {
    device::Point end;
    torch::Tensor from, to;
    torch::Tensor values = {};  // in the slot; undefined: it lands in place
    offload::StagingSlots::Slot slot = {};
    bool add = false;
  };

  device::Point land_piece(const torch::Tensor& from, const torch::Tensor& to, bool add,
                           const std::vector<device::Point>& after);
  void take_in_oldest();

  std::shared_ptr<device::HostLink> link_;
  Options options_;
  offload::StagingSlots slots_;
  std::deque<Arrival> arrivals_;
  size_t in_slots_ = 0;  // arrivals
  size_t earlier_ = 0;   // of these, the ones of gradients before this one
  int64_t shard_bytes_ = 0;
};

}  // namespace zeroth::zero
