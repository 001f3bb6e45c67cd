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

size_t bytes_of_all() {
  return static_cast<size_t>(device_count()) * DeviceMemory::kTotalBytes;
}

}  // namespace

DeviceMemory& DeviceMemory::get() {
  static auto* memory = new DeviceMemory;  // outlives every tensor
  return *memory;
}

DeviceMemory::DeviceMemory() {
  void* memory = mmap(nullptr, 2 * bytes_of_all(), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ZEROTH_CHECK(memory != MAP_FAILED, "no addresses for the simulated devices' memory");
  begin_ = static_cast<std::byte*>(memory);
  const int failed = mprotect(begin_ + bytes_of_all(), bytes_of_all(), PROT_READ | PROT_WRITE);
  ZEROTH_CHECK(failed == 0, "no memory for the simulated devices");
}

void* DeviceMemory::for_work(void* memory) const {
  return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes_of_all();
}

void* DeviceMemory::take(size_t bytes, StreamNumber stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(Timeline::get().mutex());
  release_those_that_waited();
  const auto device = static_cast<size_t>(device_of(stream));
  Use& use = uses_[device];
  const size_t rounded = std::bit_ceil(std::max(bytes, kAlignment));
  std::vector<void*>& free = free_[{stream, rounded}];
  void* memory;
  if (!free.empty()) {
    memory = free.back();  // the one that earlier work may still use
    free.pop_back();
  } else {
    ZEROTH_CHECK(use.cut_bytes + rounded <= kTotalBytes,
                 "simulated GPU {} has no {} bytes left of {}, {} of them live", device, rounded,
                 kTotalBytes, use.live_bytes.load());
    memory = begin_ + device * kTotalBytes + use.cut_bytes;
    use.cut_bytes += rounded;
    blocks_[memory] = {.bytes = rounded, .stream = stream};
    std::memset(for_work(memory), kPoison, rounded);
  }
  use.live_bytes += static_cast<int64_t>(rounded);
  use.peak_bytes = std::max(use.peak_bytes.load(), use.live_bytes.load());
  return memory;
}

void DeviceMemory::give(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(Timeline::get().mutex());
  Block& block = blocks_.at(memory);
  uses_[static_cast<size_t>(device_of(block.stream))].live_bytes -=
      static_cast<int64_t>(block.bytes);
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
