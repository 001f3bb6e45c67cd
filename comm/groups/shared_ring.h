// A ring of shared-memory slots through which the ranks of a node exchange chunks of tensors. Chunk
// c of the run uses slot c % slots of every rank. Each rank counts its progress, in chunks, with
// three counters.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/nodes/shared_segment.h"

namespace zeroth::comm {

struct RingSize {
  size_t slot_bytes = 256 << 10;
  size_t slots = 32;

  // Returns a size of about 16 MiB in all for up to 16 ranks, which stays in the cache.
  static RingSize for_ranks(int ranks);
};

class SharedRing {
 public:
  enum Counter {
    kPublished,  // the rank's slot holds the data that the others need of the chunk
    kConsumed,  // the rank has read the others' slots and written its part of a result into its own
    kDone       // the rank needs no other rank's slot for this chunk any more
  };

  static size_t bytes(int ranks, const RingSize& size);

  // Uses bytes() bytes of the segment (which the ring keeps alive), starting at `offset`.
  SharedRing(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, int ranks,
             const RingSize& size);

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(counters_.size()); }
  size_t slot_bytes() const { return size_.slot_bytes; }
  uint64_t slots() const { return size_.slots; }

  std::byte* slot(int rank, uint64_t chunk) const;
  // Returns a word beside the slot, which identifies its content.
  uint64_t& label(int rank, uint64_t chunk) const;

  // Returns the number of chunks that `rank` has completed; what the rank wrote before is visible.
  uint64_t count(int rank, Counter counter) const;
  // Returns the minimum over all ranks.
  uint64_t min_count(Counter counter) const;
  // Marks chunks below `count` as completed by this rank. Sequentially consistent, like
  // Doorbells::notify().
  void advance(Counter counter, uint64_t count);

 private:
  // Counters of one rank, which alone writes them.
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
