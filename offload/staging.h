// Stages a device's tensors for computation on the CPU, and CPU tensors for the device.
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
  // Number of buffers on each side while their copies are in flight.
  static constexpr int64_t kMaxBuffers = 2;

  // `device` is the accelerator. If it is the CPU, as in tests, a tensor does not show which side
  // it is on, so each one is copied.
  Staging(const std::shared_ptr<device::HostLink>& link, torch::Device device);

  // Returns an event after all work that the current stream has so far.
  device::StreamEvent record_event() { return copies().record_event(); }
  // Orders all later work of the current stream after `point`.
  void wait_event(const device::StreamEvent& point) { copies().wait_event(point); }
  // Calls `work` with a stream of its own: device::CopyStream::run_on_side_stream().
  device::StreamEvent run_on_side_stream(const std::vector<device::StreamEvent>& after,
                                         const std::function<void()>& work) {
    return copies().run_on_side_stream(after, work);
  }

  // Blocks until all work of the device has ended: device::CopyStream::drain().
  void drain() noexcept { copies().drain(); }

  // Announces the maximum size of a lease on `device`: see StagingBuffers::reserve().
  void reserve(torch::Device device, int64_t bytes) { buffers(device).reserve(bytes); }

  // Returns the values of `resting`, 1-D and contiguous, on `device`: the tensor itself if it is
  // stored there. Throws the failure of an earlier lease's end.
  // - A device tensor on the CPU: its read waits for `idle`, the end of the current stream's
  //   earlier work on it (record_event() if in doubt). Blocks until the copy has ended. The lease's
  //   destructor writes it back after `idle`. `written` then receives the end of that copy, after
  //   which the caller must order readers; if null, the current stream waits for it.
  // - A CPU tensor on the device, kRead only: its read waits for `idle` and is ordered on the
  //   current stream; does not block. Work queued before the lease is destroyed may use it;
  //   `resting` must keep its values until the current stream has completed that work.
  ChunkLease lease(const torch::Tensor& stored, torch::Device device, Access access,
                   const device::StreamEvent& idle, device::StreamEvent* written = nullptr);

 private:
  static bool is_host(torch::Device device) { return device == torch::Device(torch::kCPU); }
  StagingBuffers& buffers(torch::Device device) { return is_host(device) ? on_host_ : on_device_; }
  device::CopyStream& copies() { return on_host_.copies(); }
  void end_lease(StagingBuffers::Buffer& buffer, const torch::Tensor& stored, torch::Device device,
                 Access access, const device::StreamEvent& idle, device::StreamEvent* written);

  bool always_copies_;
  StagingBuffers on_host_;
  StagingBuffers on_device_;
  DeferredError failure_;  // from the end of a lease; the next lease() throws it
};

}  // namespace zeroth::offload
