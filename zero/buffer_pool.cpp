#include "zero/buffer_pool.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <bit>

namespace zeroth::zero {
namespace {

// Returns `bytes` rounded up by at most an eighth: buffers of nearly the same size (an embedding, a
// head with its norm) share memory.
size_t size_class(size_t bytes) {
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 8, 64);
  return (bytes + step - 1) / step * step;
}

}  // namespace

c10::DataPtr BufferPool::acquire(size_t bytes) {
  bytes = size_class(bytes);
  auto& stack = free_[bytes];
  if (stack.empty()) {
    allocated_bytes_ += static_cast<int64_t>(bytes);
    return c10::GetAllocator(device_.type())->allocate(bytes);
  }
  c10::DataPtr memory = std::move(stack.back());
  stack.pop_back();
  return memory;
}

void BufferPool::release(size_t bytes, c10::DataPtr memory) {
  free_[size_class(bytes)].push_back(std::move(memory));
}

torch::Tensor BufferPool::acquire_tensor(int64_t numel, torch::Dtype dtype) {
  auto& stack = free_tensors_[{numel, dtype}];
  if (stack.empty()) {
    allocated_bytes_ += numel * static_cast<int64_t>(c10::elementSize(dtype));
    return torch::empty({numel}, torch::TensorOptions(device_).dtype(dtype));
  }
  torch::Tensor tensor = std::move(stack.back());
  stack.pop_back();
  return tensor;
}

void BufferPool::release_tensor(torch::Tensor tensor) {
  free_tensors_[{tensor.numel(), tensor.scalar_type()}].push_back(std::move(tensor));
}

}  // namespace zeroth::zero
