#include "tests/simulated_gpu/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace zeroth::simulated {
namespace {

constexpr size_t kAlignment = 512;
constexpr int kPoison = 0xff;  // NaN in every floating format, -1 in integers

}  // namespace

DeviceMemory& DeviceMemory::get() {
  static auto* memory = new DeviceMemory;  // outlives every tensor
  return *memory;
}

DeviceMemory::DeviceMemory() {
  void* memory =
      mmap(nullptr, 2 * kTotalBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ZEROTH_CHECK(memory != MAP_FAILED, "no addresses for the simulated device's memory");
  begin_ = static_cast<std::byte*>(memory);
  const int failed = mprotect(begin_ + kTotalBytes, kTotalBytes, PROT_READ | PROT_WRITE);
  ZEROTH_CHECK(failed == 0, "no memory for the simulated device");
}

void* DeviceMemory::for_work(void* memory) const {
  return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + kTotalBytes;
}

void* DeviceMemory::take(size_t bytes, StreamNumber stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(Timeline::get().mutex());
  release_those_that_waited();
  const size_t rounded = std::bit_ceil(std::max(bytes, kAlignment));
  std::vector<void*>& free = free_[{stream, rounded}];
  void* memory;
  if (!free.empty()) {
    memory = free.back();  // the one that earlier work may still use
    free.pop_back();
  } else {
    ZEROTH_CHECK(cut_bytes_ + rounded <= kTotalBytes,
                 "the simulated GPU has no {} bytes left of {}, {} of them live", rounded,
                 kTotalBytes, live_bytes());
    memory = begin_ + cut_bytes_;
    cut_bytes_ += rounded;
    blocks_[memory] = {.bytes = rounded, .stream = stream};
    std::memset(for_work(memory), kPoison, rounded);
  }
  live_bytes_ += static_cast<int64_t>(rounded);
  peak_bytes_ = std::max(peak_bytes_.load(), live_bytes_.load());
  return memory;
}

void DeviceMemory::give(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(Timeline::get().mutex());
  Block& block = blocks_.at(memory);
  live_bytes_ -= static_cast<int64_t>(block.bytes);
  if (block.others.empty()) return release(memory);
  Waiting waiting{memory, {}};
  for (const StreamNumber other : block.others) {
    waiting.until.push_back(Timeline::get().mark(other));
  }
  block.others.clear();
  waiting_.push_back(std::move(waiting));
}

void DeviceMemory::also_used_on(void* memory, StreamNumber stream) {
  const std::lock_guard lock(Timeline::get().mutex());
  const auto found = blocks_.find(memory);
  if (found == blocks_.end() || found->second.stream == stream) return;
  found->second.others.push_back(stream);
}

void DeviceMemory::release(void* memory) {
  const Block& block = blocks_.at(memory);
  Timeline::get().queue(block.stream, [at = for_work(memory), bytes = block.bytes] {
    std::memset(at, kPoison, bytes);
  });
  free_[{block.stream, block.bytes}].push_back(memory);
}

void DeviceMemory::release_those_that_waited() {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const bool over = std::all_of(waiting.until.begin(), waiting.until.end(),
                                  [](const Timeline::Mark& mark) { return mark->passed; });
    if (over) release(waiting.memory);
    return over;
  });
}

}  // namespace zeroth::simulated
