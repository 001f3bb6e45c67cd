#include "offload/staging_buffers.h"

#include <ATen/ops/empty.h>

#include <limits>

namespace zeroth::offload {

StagingBuffers::StagingBuffers(std::shared_ptr<device::HostLink> link, torch::Device side,
                               size_t max_buffers)
    : link_(std::move(link)), side_(side), max_buffers_(max_buffers) {}

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
  const auto size = [bytes](const Buffer& buffer) {
    return buffer.memory.numel() < bytes ? kTooSmall : buffer.memory.numel();
  };
  const auto best = std::ranges::min_element(free_, {}, size);
  const bool fits = best != free_.end() && size(*best) < kTooSmall;
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
  return make(std::max(bytes, min_bytes_));
}

StagingBuffers::Buffer StagingBuffers::make(int64_t bytes) {
  ++count_;
  bytes_ += bytes;
  if (side_.is_cpu()) return {link_->memory.zeros(bytes, torch::kByte), {}, {}};
  // The allocator's memory may be in use by earlier work.
  return {torch::empty({bytes}, torch::TensorOptions(side_).dtype(torch::kByte)),
          {},
          copies().record_event()};
}

}  // namespace zeroth::offload
