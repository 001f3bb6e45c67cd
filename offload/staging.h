// Tensors of a device for the host to compute on, and the other way round.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "offload/shard_store.h"
#include "offload/staging_buffers.h"

namespace zeroth::offload {

class Staging {
 public:
  // Buffers on each side while their copies go on.
  static constexpr int64_t kMaxBuffers = 2;

  // `device` is the one that is not the host. Where that is the CPU, as in tests, tensors do not
  // tell on which side they are, and each is copied.
  Staging(const std::shared_ptr<device::HostLink>& link, torch::Device device);

  // What the current stream holds by now.
  device::StreamEvent record_event() { return copies().record_event(); }
  // What the current stream is given from now on runs behind the point.
  void wait_event(const device::StreamEvent& point) { copies().wait_event(point); }
  // Calls `work` for a stream of its own: device::CopyStream::run_on_side_stream().
  device::StreamEvent run_on_side_stream(const std::vector<device::StreamEvent>& after,
                                         const std::function<void()>& work) {
    return copies().run_on_side_stream(after, work);
  }

  // Blocks until all that was given to the device has ended: device::CopyStream::drain().
  void drain() noexcept { copies().drain(); }

  // Up to so many bytes will be leased at a time on `device`: see StagingBuffers.
  void reserve(torch::Device device, int64_t bytes) { buffers(device).reserve(bytes); }

  // Throws what went wrong when an earlier lease ended.
  // The values of `resting`, 1-D and contiguous, on `device`: itself where it rests there.
  // - A tensor of the device for the host: read behind `idle`, where the current stream's earlier
  //   work on it ends (record_event() if in doubt); blocks until the copy has ended. Written back
  //   behind `idle` when the lease is destroyed: `written` is then the end of that, behind which
  //   the caller orders those who read it; null: the current stream is ordered behind it.
  // - A tensor of the host for the device, kRead only: read behind `idle`, ordered on the current
  //   stream, does not block. Used there by what is queued before the lease is destroyed; `resting`
  //   keeps its values until the current stream has come past that.
  ChunkLease lease(const torch::Tensor& resting, torch::Device device, Access access,
                   const device::StreamEvent& idle, device::StreamEvent* written = nullptr);

 private:
  static bool is_host(torch::Device device) { return device == torch::Device(torch::kCPU); }
  StagingBuffers& buffers(torch::Device device) { return is_host(device) ? on_host_ : on_device_; }
  device::CopyStream& copies() { return on_host_.copies(); }
  void end_lease(StagingBuffers::Buffer& buffer, const torch::Tensor& resting, torch::Device device,
                 Access access, const device::StreamEvent& idle, device::StreamEvent* written);

  bool always_copies_;
  StagingBuffers on_host_;
  StagingBuffers on_device_;
  DeferredError failure_;  // of the end of a lease, for the next one
};

}  // namespace zeroth::offload
