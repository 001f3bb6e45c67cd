#include "zero/buffer_pool.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace zeroth::zero {
namespace {

// Returns `bytes` rounded up by at most an eighth: buffers of nearly the same size (an embedding, a
// head with its norm) share memory.
size_t size_class(size_t bytes) {
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 8, 64);
  return (bytes + step - 1) / step * step;
}

// Returns the entry that was released last; nothing if there is none.
template <typename Entry>
std::optional<Entry> pop(std::vector<Entry>& stack) {
  if (stack.empty()) return std::nullopt;
  std::optional<Entry> entry = std::move(stack.back());
  stack.pop_back();
  return entry;
}

}  // namespace

c10::DataPtr BufferPool::acquire(size_t bytes) {
  bytes = size_class(bytes);
  if (auto memory = pop(free_[bytes])) return *std::move(memory);
  allocated_bytes_ += static_cast<int64_t>(bytes);
  return c10::GetAllocator(device_.type())->allocate(bytes);
}

void BufferPool::release(size_t bytes, c10::DataPtr memory) {
  free_[size_class(bytes)].push_back(std::move(memory));
}

torch::Tensor BufferPool::acquire_tensor(int64_t numel, torch::Dtype dtype) {
  if (auto tensor = pop(free_tensors_[{numel, dtype}])) return *std::move(tensor);
  allocated_bytes_ += numel * static_cast<int64_t>(c10::elementSize(dtype));
  return torch::empty({numel}, torch::TensorOptions(device_).dtype(dtype));
}

void BufferPool::release_tensor(torch::Tensor tensor) {
  free_tensors_[{tensor.numel(), tensor.scalar_type()}].push_back(std::move(tensor));
}

}  // namespace zeroth::zero
