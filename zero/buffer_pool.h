// A pool of memory for gathered parameters and full gradients, reused from step to step: fresh
// pages are expensive on the CPU, and the allocator's synchronization is expensive on a GPU.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <vector>

#include "device/tensor.h"

namespace zeroth::zero {

class BufferPool {
 public:
  explicit BufferPool(torch::Device device) : device_(device) {}

  // Returns memory of at least `bytes` bytes with unspecified content, from the pool if possible.
  c10::DataPtr acquire(size_t bytes);
  // Returns memory to the pool. The caller has waited for all reads and writes of the memory, or
  // has queued that wait on the current stream.
  void release(size_t bytes, c10::DataPtr memory);

  // Returns such memory as a 1-D tensor.
  torch::Tensor acquire_tensor(int64_t numel, torch::Dtype dtype);
  void release_tensor(torch::Tensor tensor);

  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  torch::Device device_;
  std::map<size_t, std::vector<c10::DataPtr>> free_;
  std::map<std::pair<int64_t, torch::Dtype>, std::vector<torch::Tensor>> free_tensors_;
  int64_t allocated_bytes_ = 0;
};

}  // namespace zeroth::zero
