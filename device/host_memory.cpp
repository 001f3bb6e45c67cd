#include "device/host_memory.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/machine/host_limits.h"
#include "base/machine/parallel.h"
#include "base/machine/process_limits.h"

namespace zeroth::device {
namespace {

size_t page_size() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t round_to_pages(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + page_size() - 1) / page_size() * page_size();
}

// Faults in the pages of fresh memory with all threads; locking would do so with one.
void touch(std::span<std::byte> memory) {
  constexpr int64_t kGrain = int64_t{64} << 20;  // whole huge pages
  parallel_for(std::ssize(memory), kGrain, [&](int64_t begin, int64_t end) {
    const auto page = static_cast<int64_t>(page_size());
    for (int64_t at = (begin + page - 1) / page * page; at < end; at += page) memory[at] = {};
  });
}

}  // namespace

struct HostMemory::Accounting {
  std::shared_ptr<PageLocker> locker;
  int64_t bytes = 0;
  int64_t locked_bytes = 0;
  std::string refused;  // why the locker failed

  std::span<std::byte> allocate(size_t wanted);
  bool lock(std::span<std::byte> memory);
  void unlock(std::span<std::byte> memory);
  void free_memory(std::span<std::byte> memory, bool locked);
};

std::span<std::byte> HostMemory::Accounting::allocate(size_t wanted) {
  const size_t size = round_to_pages(wanted);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfHostMemory(
        static_cast<int64_t>(size),
        fmt::format("cannot allocate {} bytes of host memory for offloaded state: {}", size,
                    system_reason(errno)));
  }
  madvise(memory, size, MADV_HUGEPAGE);  // fewer pages to touch, lock and look up
  bytes += static_cast<int64_t>(size);
  return {static_cast<std::byte*>(memory), size};
}

bool HostMemory::Accounting::lock(std::span<std::byte> memory) {
  if (!locker || !refused.empty()) return false;
  refused = locker->lock(memory);
  if (!refused.empty()) return false;
  locked_bytes += static_cast<int64_t>(memory.size());
  return true;
}

void HostMemory::Accounting::unlock(std::span<std::byte> memory) {
  locker->unlock(memory);
  locked_bytes -= static_cast<int64_t>(memory.size());
}

void HostMemory::Accounting::free_memory(std::span<std::byte> memory, bool locked) {
  if (locked) unlock(memory);
  munmap(memory.data(), memory.size());
  bytes -= static_cast<int64_t>(memory.size());
}

HostMemory::HostMemory(std::shared_ptr<PageLocker> locker)
    : accounting_(std::make_shared<Accounting>()) {
  accounting_->locker = std::move(locker);
}

torch::Tensor HostMemory::zeros(int64_t numel, torch::Dtype dtype) {
  const std::span<std::byte> memory =
      accounting_->allocate(static_cast<size_t>(numel) * c10::elementSize(dtype));
  if (accounting_->locker && accounting_->refused.empty()) touch(memory);
  const bool locked = accounting_->lock(memory);
  return at::from_blob(
      memory.data(), {numel},
      [accounting = accounting_, memory, locked](void*) {
        accounting->free_memory(memory, locked);
      },
      torch::TensorOptions(torch::kCPU).dtype(dtype));
}

std::shared_ptr<void> HostMemory::lock(std::span<std::byte> memory) {
  if (!accounting_->lock(memory)) return nullptr;
  return {memory.data(), [accounting = accounting_, memory](void*) { accounting->unlock(memory); }};
}

int64_t HostMemory::bytes() const {
  return accounting_->bytes;
}

int64_t HostMemory::locked_bytes() const {
  return accounting_->locked_bytes;
}

std::vector<std::string> HostMemory::notes() const {
  if (accounting_->refused.empty()) return {};
  return {
      fmt::format("host memory cannot be page-locked, so copies to and from the device are "
                  "slower: {}",
                  accounting_->refused)};
}

}  // namespace zeroth::device
