#include "offload/staging.h"

#include <limits>

#include "base/error.h"

namespace zeroth::offload {

StagingBuffers::Buffer StagingBuffers::acquire(const torch::Tensor& like) {
  const auto bytes = static_cast<int64_t>(like.nbytes());
  Buffer buffer = acquire_memory(bytes);
  buffer.values = buffer.memory.narrow(0, 0, bytes).view(like.scalar_type()).view(like.sizes());
  return buffer;
}

StagingBuffers::Buffer StagingBuffers::fetch(const torch::Tensor& from,
                                             std::vector<device::StreamEvent> after) {
  Buffer buffer = acquire(from);
  after.push_back(std::move(buffer.free));
  buffer.free = copies().copy(buffer.values, from, after);
  return buffer;
}

void StagingBuffers::send(Buffer& buffer, const torch::Tensor& to,
                          const device::StreamEvent& after) {
  buffer.free = copies().copy(to, buffer.values, {buffer.free, after});
}

StagingBuffers::Buffer StagingBuffers::acquire_memory(int64_t bytes) {
  constexpr int64_t kTooSmall = std::numeric_limits<int64_t>::max();
  const auto usable = [bytes](const Buffer& buffer) {
    return buffer.memory.numel() < bytes ? kTooSmall : buffer.memory.numel();
  };
  const auto best = std::ranges::min_element(free_, {}, usable);
  const bool fits = best != free_.end() && usable(*best) < kTooSmall;
  const bool may_grow = count_ < max_buffers_;
  if (fits && (!may_grow || copies().is_complete(best->free))) {
    Buffer buffer = std::move(*best);
    free_.erase(best);
    return buffer;
  }
  if (!free_.empty() && !may_grow) {
    copies().wait(free_.front().free);
    bytes_ -= free_.front().memory.numel();
    --count_;
    free_.pop_front();
  }
  const int64_t size = std::max(bytes, min_bytes_);
  ++count_;
  bytes_ += size;
  if (side_.is_cpu()) return {link_->memory.zeros(size, torch::kByte), {}, {}};
  // The allocator's memory may be in use by earlier work.
  return {torch::empty({size}, torch::TensorOptions(side_).dtype(torch::kByte)),
          {},
          copies().record_event()};
}

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
  const auto end = [this, buffer, stored, device, access, idle, written] {
    if (access != Access::kRead) {
      buffers(device).send(*buffer, stored, idle);
      if (written == nullptr) {
        copies().wait_event(buffer->free);
      } else {
        *written = buffer->free;
      }
    } else if (!is_host(device)) {
      buffer->free = copies().record_event();
    }
    buffers(device).release(std::move(*buffer));
  };
  return ChunkLease(buffer->values, {nullptr, [this, end](void*) { failure_.guard(end); }});
}

}  // namespace zeroth::offload
