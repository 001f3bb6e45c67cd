#include "tests/simulated_gpu/pinned_pages.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace zeroth::simulated {

PinnedPages& PinnedPages::get() {
  static auto* pages = new PinnedPages;  // outlives every tensor
  return *pages;
}

void PinnedPages::lock(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  const bool added = pages_.emplace(memory.data(), Pages{memory.data() + memory.size()}).second;
  ZEROTH_CHECK(added, "pages at {} locked twice", fmt::ptr(memory.data()));
}

void PinnedPages::unlock(std::span<std::byte> memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = pages_.find(memory.data());
  if (found != pages_.end() && found->second.copies == 0) {
    pages_.erase(found);
    return;
  }
  fmt::print(stderr, "simulated GPU: {} bytes of host memory are unlocked, {}\n", memory.size(),
             found == pages_.end() ? "that were not locked" : "but a copy still uses them");
  std::abort();
}

void PinnedPages::free_when_idle(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = pages_.find(static_cast<const std::byte*>(memory));
  found->second.free_when_idle = true;
  if (found->second.copies > 0) return;
  pages_.erase(found);
  std::free(memory);
}

bool PinnedPages::contains(const void* memory) const {
  const std::lock_guard lock(mutex_);
  return find(memory) != pages_.end();
}

void PinnedPages::copy_queued(const void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = find(memory);
  ZEROTH_CHECK(
      found != pages_.end() && static_cast<const std::byte*>(memory) + bytes <= found->second.end,
      "a copy of {} bytes of host memory that is not locked to its end", bytes);
  ++pages_.at(found->first).copies;
}

void PinnedPages::copy_ended(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = find(memory);
  const auto begin = found->first;
  Pages& pages = pages_.at(begin);
  if (--pages.copies > 0 || !pages.free_when_idle) return;
  pages_.erase(begin);
  std::free(const_cast<std::byte*>(begin));
}

PinnedPages::Map::const_iterator PinnedPages::find(const void* memory) const {
  const auto* byte = static_cast<const std::byte*>(memory);
  auto after = pages_.upper_bound(byte);
  if (after == pages_.begin()) return pages_.end();
  const auto candidate = std::prev(after);
  return byte < candidate->second.end ? candidate : pages_.end();
}

}  // namespace zeroth::simulated
