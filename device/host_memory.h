// Host memory from and to which a device copies at full speed.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zeroth::device {

// Keeps pages in place, which a device needs for copies that run beside the host.
class PageLocker {
 public:
  virtual ~PageLocker() = default;
  // Empty, or why this memory stays pageable.
  virtual std::string lock(std::span<std::byte> memory) = 0;
  // Of memory that lock() took and that no copy uses any more.
  virtual void unlock(std::span<std::byte> memory) noexcept = 0;
};

// Tensors of exactly the bytes that were asked for, page-locked where there is a locker and it
// agrees. After the first refusal everything else stays pageable too: slower, and as right.
class HostMemory {
 public:
  explicit HostMemory(std::shared_ptr<PageLocker> locker = nullptr);

  // [numel] zeros on the CPU. Given back when the last tensor on this memory is gone, which may be
  // after this object; copies from and to it have ended by then. Throws an OutOfHostMemory with the
  // bytes and the system's reason.
  torch::Tensor zeros(int64_t numel, torch::Dtype dtype);

  // Locks memory of somebody else, who keeps it longer than the handle. Null where the locker
  // refuses or has refused.
  std::shared_ptr<void> lock(std::span<std::byte> memory);

  // Of the tensors that live now.
  int64_t bytes() const;
  int64_t locked_bytes() const;  // and of memory that lock() took
  // At most one line: that memory is pageable, and why.
  std::vector<std::string> notes() const;

 private:
  struct Accounting;  // shared with the tensors
  std::shared_ptr<Accounting> accounting_;
};

}  // namespace zeroth::device
