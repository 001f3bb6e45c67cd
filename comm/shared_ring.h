// Slots of shared memory through which the ranks of a host hand each other pieces of tensors. Piece
// p of the run uses slot p % slots of every rank. Ranks count how far they are, in pieces, with
// three counters each.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/shared_segment.h"

namespace zeroth::comm {

struct RingSize {
  size_t slot_bytes = 256 << 10;
  size_t slots = 32;

  // About 16 MiB together for up to 16 ranks: it stays in the cache.
  static RingSize for_ranks(int ranks);
};

class SharedRing {
 public:
  enum Counter {
    kPublished,  // the rank's slot holds what the others need of the piece
    kConsumed,   // the rank has read the others' slots, and written its part of a result into its
                 // own
    kDone        // the rank needs nobody's slot for this piece any more
  };

  static size_t bytes(int ranks, const RingSize& size);

  // Uses bytes() bytes of the segment (which the ring keeps alive) from `offset` on.
  SharedRing(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, int ranks,
             const RingSize& size);

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(counters_.size()); }
  size_t slot_bytes() const { return size_.slot_bytes; }
  uint64_t slots() const { return size_.slots; }

  std::byte* slot(int rank, uint64_t chunk) const;
  // A number beside the slot: says what it holds.
  uint64_t& label(int rank, uint64_t chunk) const;

  // Pieces that `rank` is through with; what the rank wrote before can be read.
  uint64_t count(int rank, Counter counter) const;
  // The least of all ranks.
  uint64_t min_count(Counter counter) const;
  // This rank is through with pieces below `count`. Sequentially consistent, as
  // Doorbells::notify().
  void advance(Counter counter, uint64_t count);

 private:
  // Of one rank, which alone writes it.
  struct alignas(64) RankCounters {
    std::array<std::atomic<uint64_t>, 3> counts;
  };

  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  RingSize size_;
  std::span<RankCounters> counters_;
  uint64_t* labels_;
  std::byte* slots_;
};

}  // namespace zeroth::comm
