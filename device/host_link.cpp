#include "device/host_link.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

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
  std::shared_ptr<PagePinner> pinner;
  int64_t bytes = 0;
  int64_t pinned_bytes = 0;
  std::string refused;  // why the pinner failed

  std::span<std::byte> allocate(size_t wanted) {
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

  bool pin(std::span<std::byte> memory) {
    if (!pinner || !refused.empty()) return false;
    refused = pinner->pin(memory);
    if (!refused.empty()) return false;
    pinned_bytes += static_cast<int64_t>(memory.size());
    return true;
  }

  void unpin(std::span<std::byte> memory) {
    pinner->unpin(memory);
    pinned_bytes -= static_cast<int64_t>(memory.size());
  }

  void free_memory(std::span<std::byte> memory, bool locked) {
    if (locked) unpin(memory);
    munmap(memory.data(), memory.size());
    bytes -= static_cast<int64_t>(memory.size());
  }
};

HostMemory::HostMemory(std::shared_ptr<PagePinner> pinner)
    : accounting_(std::make_shared<Accounting>()) {
  accounting_->pinner = std::move(pinner);
}

torch::Tensor HostMemory::zeros(int64_t numel, torch::Dtype dtype) {
  const std::span<std::byte> memory =
      accounting_->allocate(static_cast<size_t>(numel) * c10::elementSize(dtype));
  if (accounting_->pinner && accounting_->refused.empty()) touch(memory);
  const bool locked = accounting_->pin(memory);
  return at::from_blob(
      memory.data(), {numel},
      [accounting = accounting_, memory, locked](void*) {
        accounting->free_memory(memory, locked);
      },
      torch::TensorOptions(torch::kCPU).dtype(dtype));
}

std::shared_ptr<void> HostMemory::pin(std::span<std::byte> memory) {
  if (!accounting_->pin(memory)) return nullptr;
  return {memory.data(), [accounting = accounting_, memory](void*) { accounting->unpin(memory); }};
}

int64_t HostMemory::bytes() const {
  return accounting_->bytes;
}

int64_t HostMemory::pinned_bytes() const {
  return accounting_->pinned_bytes;
}

std::vector<std::string> HostMemory::notes() const {
  if (accounting_->refused.empty()) return {};
  return {
      fmt::format("host memory cannot be page-locked, so copies to and from the device are "
                  "slower: {}",
                  accounting_->refused)};
}

std::shared_ptr<HostLink> make_host_link(torch::Device device, bool pin_memory) {
  std::shared_ptr<PagePinner> pinner;
  if (pin_memory && !device.is_cpu()) pinner = {std::shared_ptr<void>(), &load_gpu()};  // not owned
  return std::make_shared<HostLink>(
      HostLink{HostMemory(std::move(pinner)), make_copy_stream(device)});
}

}  // namespace zeroth::device
