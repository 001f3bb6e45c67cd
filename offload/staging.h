// Tensors of a device for the host to compute on, and the other way round.
#pragma once

#include <torch/types.h>

#include <exception>
#include <memory>

#include "offload/shard_store.h"
#include "offload/staging_slots.h"

namespace zeroth::offload {

class Staging {
 public:
  // `device` is the one that is not the host. `slots`: buffers on each side that may wait for their
  // copies before one is waited for. `always`: copies from the CPU to the CPU, too, for tests.
  Staging(std::shared_ptr<device::HostLink> link, torch::Device device, size_t slots = 2,
          bool always = false);

  // What the current stream holds by now.
  device::Point now() { return link_->copies->now(); }

  // Up to so many bytes will be leased at a time on `device`: see StagingSlots.
  void expect(torch::Device device, int64_t bytes) {
    (goes_to_host(device) ? host_slots_ : device_slots_).expect(bytes);
  }

  // Throws what went wrong when an earlier lease ended.
  // The values of `resting`, 1-D and contiguous, on `device`: itself where it rests there.
  // - A tensor of the device for the host: read behind `idle`, where the current stream's earlier
  //   work on it ends (now() if in doubt); blocks until the copy has ended. Written back behind
  //   `idle` when the lease is destroyed; the current stream is ordered behind that.
  // - A tensor of the host for the device, kRead only: ordered on the current stream, does not
  //   block. Used there by what is queued before the lease is destroyed; `resting` keeps its values
  //   until the current stream has come past that.
  TileLease lease(const torch::Tensor& resting, torch::Device device, Access access,
                  const device::Point& idle);

  int64_t host_bytes() const { return host_slots_.bytes(); }
  int64_t device_bytes() const { return device_slots_.bytes(); }

 private:
  bool goes_to_host(torch::Device device) const {
    return always_ ? device == torch::Device(torch::kCPU) : device.is_cpu();
  }
  TileLease for_host(const torch::Tensor& resting, Access access, const device::Point& idle);
  TileLease for_device(const torch::Tensor& resting);
  template <typename Body>
  void guarded(Body&& body) noexcept;

  std::shared_ptr<device::HostLink> link_;
  bool always_;
  StagingSlots host_slots_;
  StagingSlots device_slots_;
  std::exception_ptr failure_;  // of a release, for the next lease
};

}  // namespace zeroth::offload
