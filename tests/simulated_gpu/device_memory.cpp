#include "tests/simulated_gpu/device_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace zeroth::simulated {
namespace {

constexpr size_t kAlignment = 512;
constexpr int kPoison = 0xff;  // NaN in every floating format, -1 in integers

void poison(void* memory, size_t bytes, StreamNumber stream) {
  Timeline::get().queue(stream, [=] { std::memset(memory, kPoison, bytes); });
}

}  // namespace

DeviceMemory& DeviceMemory::get() {
  static auto* memory = new DeviceMemory;  // outlives every tensor
  return *memory;
}

void* DeviceMemory::take(size_t bytes, StreamNumber stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(Timeline::get().mutex());
  release_those_that_waited();
  const size_t rounded = std::bit_ceil(std::max(bytes, kAlignment));
  live_bytes_ += static_cast<int64_t>(rounded);
  peak_bytes_ = std::max(peak_bytes_.load(), live_bytes_.load());
  std::vector<void*>& free = free_[{stream, rounded}];
  if (!free.empty()) {
    void* memory = free.back();  // the one that earlier work may still use
    free.pop_back();
    return memory;
  }
  void* memory = std::aligned_alloc(kAlignment, rounded);
  ZEROTH_CHECK(memory != nullptr, "no {} bytes for the simulated device", rounded);
  blocks_[memory] = {.bytes = rounded, .stream = stream};
  std::memset(memory, kPoison, rounded);
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
  poison(memory, block.bytes, block.stream);
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
