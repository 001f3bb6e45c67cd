#include "offload/staging.h"

#include <utility>

#include "base/error.h"

namespace zeroth::offload {

Staging::Staging(std::shared_ptr<device::HostLink> link, torch::Device device, size_t slots,
                 bool always)
    : link_(std::move(link)),
      always_(always),
      host_slots_(*link_, torch::kCPU, slots),
      device_slots_(*link_, device, slots) {}

TileLease Staging::lease(const torch::Tensor& resting, torch::Device device, Access access,
                         const device::Point& idle) {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  ZEROTH_CHECK(resting.dim() == 1 && resting.is_contiguous(),
               "a lease of a tensor that is not flat");
  if (!always_ && resting.device().type() == device.type()) return TileLease(resting);
  if (goes_to_host(device)) return for_host(resting, access, idle);
  ZEROTH_CHECK(access == Access::kRead, "a host tensor is only read on {}", device.str());
  return for_device(resting);
}

template <typename Body>
void Staging::guarded(Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

TileLease Staging::for_host(const torch::Tensor& resting, Access access,
                            const device::Point& idle) {
  device::CopyStream& copies = *link_->copies;
  auto slot = std::make_shared<StagingSlots::Slot>(
      host_slots_.take(static_cast<int64_t>(resting.nbytes())));
  copies.wait(slot->free);
  const torch::Tensor values = slot->view(resting.numel(), resting.scalar_type());
  if (access != Access::kWrite) copies.wait(copies.copy(values, resting, {idle}));
  return TileLease(values, [this, slot, values, resting, access, idle] {
    guarded([&] {
      slot->free = {};
      if (access != Access::kRead) {
        slot->free = link_->copies->copy(resting, values, {idle});
        link_->copies->order(slot->free);
      }
      host_slots_.give(std::move(*slot));
    });
  });
}

TileLease Staging::for_device(const torch::Tensor& resting) {
  device::CopyStream& copies = *link_->copies;
  auto slot = std::make_shared<StagingSlots::Slot>(
      device_slots_.take(static_cast<int64_t>(resting.nbytes())));
  const torch::Tensor values = slot->view(resting.numel(), resting.scalar_type());
  copies.order(copies.copy(values, resting, {slot->free}));
  return TileLease(values, [this, slot] {
    guarded([&] {
      slot->free = link_->copies->now();
      device_slots_.give(std::move(*slot));
    });
  });
}

}  // namespace zeroth::offload
