#include "comm/groups/shared_ring.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace zeroth::comm {
namespace {

constexpr size_t kPage = 4096;
size_t whole_pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

RingSize RingSize::for_ranks(int ranks) {
  RingSize size;
  while (size.slots * size.slot_bytes * static_cast<size_t>(ranks) > (size_t{16} << 20) &&
         size.slots > 4) {
    size.slots /= 2;
  }
  return size;
}

size_t SharedRing::bytes(int ranks, const RingSize& size) {
  const auto count = static_cast<size_t>(ranks);
  return whole_pages(sizeof(RankCounters) * count) +
         whole_pages(sizeof(uint64_t) * count * size.slots) + count * size.slots * size.slot_bytes;
}

SharedRing::SharedRing(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, int ranks,
                       const RingSize& size)
    : segment_(std::move(segment)), rank_(rank), size_(size) {
  ZEROTH_CHECK(std::has_single_bit(size.slots) && size.slot_bytes % kPage == 0,
               "{} slots of {} bytes", size.slots, size.slot_bytes);
  offset = whole_pages(offset);
  ZEROTH_CHECK(segment_->size() >= offset + bytes(ranks, size), "{} bytes for {}", segment_->size(),
               offset + bytes(ranks, size));
  const auto count = static_cast<size_t>(ranks);
  std::byte* memory = segment_->data() + offset;
  counters_ = {reinterpret_cast<RankCounters*>(memory), count};
  memory += whole_pages(sizeof(RankCounters) * count);
  labels_ = reinterpret_cast<uint64_t*>(memory);
  slots_ = memory + whole_pages(sizeof(uint64_t) * count * size.slots);
}

std::byte* SharedRing::slot(int rank, uint64_t chunk) const {
  const size_t index = static_cast<size_t>(rank) * size_.slots + chunk % size_.slots;
  return slots_ + index * size_.slot_bytes;
}

uint64_t& SharedRing::label(int rank, uint64_t chunk) const {
  return labels_[static_cast<size_t>(rank) * size_.slots + chunk % size_.slots];
}

uint64_t SharedRing::count(int rank, Counter counter) const {
  return counters_[static_cast<size_t>(rank)].counts[counter].load(std::memory_order_acquire);
}

uint64_t SharedRing::min_count(Counter counter) const {
  uint64_t min_read = UINT64_MAX;
  for (int rank = 0; rank < ranks(); ++rank) min_read = std::min(min_read, count(rank, counter));
  return min_read;
}

void SharedRing::advance(Counter counter, uint64_t count) {
  counters_[static_cast<size_t>(rank_)].counts[counter].store(count, std::memory_order_seq_cst);
}

}  // namespace zeroth::comm
