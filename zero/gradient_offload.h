// The offload of reduced gradients to the CPU while backward continues.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "device/host_link.h"
#include "device/tensor.h"
#include "offload/staging.h"

namespace zeroth::zero {

struct GradientOffloadOptions {
  int64_t chunk_bytes = int64_t{16} << 20;  // bytes of a buffer; larger copies are cut
  torch::Device host = torch::kCPU;         // kMeta: only counts the memory
};

// A GradientOffload copies gradients over the link once, in the dtype of their communication. If
// that is also the shard's dtype and there is nothing to add to, it copies into the shard itself.
// Otherwise it copies into buffers, from which a thread adds them after they arrive, while the
// caller queues work on the device. Sums have the order, and the bits, of those on a device. Errors
// of the thread are thrown by a later begin_gradient(), start_copy() or finish().
class GradientOffload {
 public:
  explicit GradientOffload(std::shared_ptr<device::HostLink> link,
                           const GradientOffloadOptions& options = {});
  ~GradientOffload();  // drops values not yet added

  // Allocates CPU memory for a shard, zeroed.
  torch::Tensor allocate_shard(int64_t numel, torch::Dtype dtype);

  // Begins the next gradient. Buffers hold two gradients, so this waits until all before the last
  // one have been added; the device continues with its queued work meanwhile.
  void begin_gradient();
  // Starts to copy or add `from`, on the device, to `to`, after event `after`. `to` has the result
  // after finish(). Returns the event after which `from` is free. Does not wait; data that has
  // arrived is added from now on.
  device::StreamEvent start_copy(const torch::Tensor& from, const torch::Tensor& to, bool add,
                                 const device::StreamEvent& after);
  // Waits until all data has arrived and has been added.
  void finish();

  device::CopyStream& copies() const { return buffers_.copies(); }
  int64_t shard_bytes() const { return shard_bytes_; }
  int64_t buffer_bytes() const { return buffers_.bytes(); }

 private:
  // A chunk in flight, which has arrived when its buffer is free.
  struct Arrival {
    offload::StagingBuffers::Buffer buffer;  // without values for a copy in place
    torch::Tensor from, to;
    bool add = false;
  };

  class Adder;

  // Waits for the oldest arrival and passes it to the adder if it is in a buffer.
  void accept_oldest();
  void release_added();
  // Waits until the first `chunks` chunks in buffers have been added, counted from the start.
  void wait_until_added(int64_t chunks);

  GradientOffloadOptions options_;
  std::deque<Arrival> arrivals_;  // in flight
  std::deque<Arrival> adding_;    // with the adder, or added
  int64_t in_buffers_ = 0;        // chunks copied into buffers so far
  int64_t earlier_ = 0;           // chunks of earlier gradients in in_buffers_
  int64_t accepted_ = 0;          // chunks passed to the adder so far
  int64_t released_ = 0;          // chunks whose buffers are free again
  int64_t shard_bytes_ = 0;
  std::unique_ptr<Adder> adder_;
  offload::StagingBuffers buffers_;
};

}  // namespace zeroth::zero
