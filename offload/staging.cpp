#include "offload/staging.h"

#include <utility>

#include "base/error.h"

namespace zeroth::offload {

Staging::Staging(const std::shared_ptr<device::HostLink>& link, torch::Device device)
    : always_copies_(device.is_cpu()),
      on_host_(link, torch::kCPU, kMaxBuffers),
      on_device_(link, device, kMaxBuffers) {}

ChunkLease Staging::lease(const torch::Tensor& stored, torch::Device device, Access access,
                          const device::StreamEvent& idle, device::StreamEvent* written) {
  failure_.rethrow();
  ZEROTH_CHECK(stored.dim() == 1 && stored.is_contiguous(), "a lease of a tensor that is not flat");
  if (!always_copies_ && stored.device().type() == device.type()) return ChunkLease(stored);
  ZEROTH_CHECK(is_host(device) || access == Access::kRead, "a host tensor is only read on {}",
               device.str());
  const auto buffer = std::make_shared<StagingBuffers::Buffer>(
      access == Access::kWrite ? buffers(device).acquire(stored)
                               : buffers(device).fetch(stored, {idle}));
  is_host(device) ? copies().wait(buffer->free) : copies().wait_event(buffer->free);
  return ChunkLease(buffer->values, [this, buffer, stored, device, access, idle, written] {
    failure_.guard([&] { end_lease(*buffer, stored, device, access, idle, written); });
  });
}

void Staging::end_lease(StagingBuffers::Buffer& buffer, const torch::Tensor& stored,
                        torch::Device device, Access access, const device::StreamEvent& idle,
                        device::StreamEvent* written) {
  if (access != Access::kRead) {
    buffers(device).send(buffer, stored, idle);
    if (written == nullptr) {
      copies().wait_event(buffer.free);
    } else {
      *written = buffer.free;
    }
  } else if (!is_host(device)) {
    buffer.free = copies().record_event();
  }
  buffers(device).release(std::move(buffer));
}

}  // namespace zeroth::offload
