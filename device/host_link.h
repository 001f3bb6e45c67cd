// The CPU side of a device: host memory to copy from and to, and the stream of copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/copy_stream.h"
#include "device/gpu.h"
#include "device/tensor.h"

namespace zeroth::device {

// HostMemory makes tensors of exactly the requested bytes, pinned if there is a pinner and it
// succeeds. After the first failure all later memory stays pageable too: slower, but equally
// correct.
class HostMemory {
 public:
  explicit HostMemory(std::shared_ptr<PagePinner> pinner = nullptr);

  // Returns [numel] zeros on the CPU. The memory is freed with the last tensor on it, possibly
  // after this object; copies from and to it must have ended by then. Throws OutOfHostMemory with
  // the bytes and the system's reason.
  torch::Tensor zeros(int64_t numel, torch::Dtype dtype);

  // Pins memory that the caller owns and keeps longer than the handle. Returns null if the pinner
  // fails or has failed before.
  std::shared_ptr<void> pin(std::span<std::byte> memory);

  // Returns the bytes of all live tensors.
  int64_t bytes() const;
  int64_t pinned_bytes() const;  // includes memory of pin()
  // Returns at most one line: that memory is pageable, and why.
  std::vector<std::string> notes() const;

 private:
  struct Accounting;  // shared with the tensors
  std::shared_ptr<Accounting> accounting_;
};

struct HostLink {
  HostMemory memory;
  std::unique_ptr<CopyStream> copies;  // destroyed first: it waits for its copies
};

// Makes the link. On a GPU the memory is pinned if `pin_memory`, and copies run on streams of
// their own. On the CPU the memory is pageable, and each copy ends before its call returns.
std::shared_ptr<HostLink> make_host_link(torch::Device device, bool pin_memory);

}  // namespace zeroth::device
