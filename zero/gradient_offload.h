// Where reduced gradients come to rest on the host while backward goes on.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "device/host_link.h"
#include "offload/staging_buffers.h"

namespace zeroth::zero {

// Gradients cross the link once, in the dtype in which they crossed the ranks. Where that is also
// the shard's dtype and there is nothing to add to, they land in the shard itself; else in buffers,
// from which a thread adds them when they have come, while the caller gives the device its work.
// Sums have the order, and the bits, of those on a device. What goes wrong in them is thrown by a
// later begin(), start_copy() or finish().
class GradientOffload {
 public:
  struct Options {
    int64_t chunk_bytes = int64_t{16} << 20;  // of a buffer: what passes through one is cut
    torch::Device host = torch::kCPU;         // kMeta: only counts what landing takes
  };

  explicit GradientOffload(std::shared_ptr<device::HostLink> link);
  GradientOffload(std::shared_ptr<device::HostLink> link, const Options& options);
  ~GradientOffload();  // drops what is not yet added

  // Host memory for a shard, zeros.
  torch::Tensor allocate_shard(int64_t numel, torch::Dtype dtype);

  // The next gradient begins to land. Buffers hold two gradients, so this waits until all before
  // the last one have been added; the device goes on meanwhile with what it has been given.
  void begin_gradient();
  // Starts to copy `from`, of the device, to `to`, or to add it; behind `after`. `to` has the
  // result after finish(). Returns the point from which `from` is free. Waits for nothing; what has
  // come is added from now on.
  device::StreamEvent start_copy(const torch::Tensor& from, const torch::Tensor& to, bool add,
                                 const device::StreamEvent& after);
  // Waits until all has landed, and has been added.
  void finish();

  device::CopyStream& copies() const { return buffers_.copies(); }
  int64_t shard_bytes() const { return shard_bytes_; }
  int64_t buffer_bytes() const { return buffers_.bytes(); }

 private:
  // A piece on its way, which has come when its buffer is free.
  struct Arrival {
    offload::StagingBuffers::Buffer buffer;  // without values where the piece lands in place
    torch::Tensor from, to;
    bool add = false;
  };

  class Adder;

  // When it has come it is the adder's, if it is in a buffer.
  void accept_oldest();
  void release_added();
  // Of the pieces in buffers the first so many, counted from the start.
  void wait_until_added(int64_t chunks);

  Options options_;
  std::deque<Arrival> arrivals_;  // on their way
  std::deque<Arrival> adding_;    // the adder's, or added
  int64_t in_buffers_ = 0;        // pieces that went into buffers so far
  int64_t earlier_ = 0;           // of these, the ones of gradients before this one
  int64_t accepted_ = 0;          // of these, the ones that the adder was given
  int64_t released_ = 0;          // of these, the ones whose buffers are free again
  int64_t shard_bytes_ = 0;
  std::unique_ptr<Adder> adder_;
  offload::StagingBuffers buffers_;
};

}  // namespace zeroth::zero
