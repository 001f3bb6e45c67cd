// Host memory that a device copies from and to at full speed.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zeroth::device {

// A PageLocker pins pages, which a device requires for copies that overlap with CPU work.
class PageLocker {
 public:
  virtual ~PageLocker() = default;
  // Returns an empty text, or the reason why this memory stays pageable.
  virtual std::string lock(std::span<std::byte> memory) = 0;
  // Unlocks memory that lock() has locked. No copy may still use it.
  virtual void unlock(std::span<std::byte> memory) noexcept = 0;
};

// HostMemory makes tensors of exactly the requested bytes, page-locked if there is a locker and it
// succeeds. After the first failure all later memory stays pageable too: slower, but equally
// correct.
class HostMemory {
 public:
  explicit HostMemory(std::shared_ptr<PageLocker> locker = nullptr);

  // Returns [numel] zeros on the CPU. The memory is freed with the last tensor on it, possibly
  // after this object; copies from and to it must have ended by then. Throws OutOfHostMemory with
  // the bytes and the system's reason.
  torch::Tensor zeros(int64_t numel, torch::Dtype dtype);

  // Locks memory that the caller owns and keeps longer than the handle. Returns null if the locker
  // fails or has failed before.
  std::shared_ptr<void> lock(std::span<std::byte> memory);

  // Returns the bytes of all live tensors.
  int64_t bytes() const;
  int64_t locked_bytes() const;  // includes memory locked by lock()
  // Returns at most one line: that memory is pageable, and why.
  std::vector<std::string> notes() const;

 private:
  struct Accounting;  // shared with the tensors
  std::shared_ptr<Accounting> accounting_;
};

}  // namespace zeroth::device
