// A collective between the ranks of a node, cut into chunks that pass through the slots of a
// SharedRing. An Exchange knows which bytes are copied where, but nothing of waiting.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/groups/group.h"
#include "comm/groups/shared_ring.h"

namespace zeroth::comm {

// An Exchange processes each chunk by publish() on every rank, then consume(), then, if it has two
// phases, finish().
class Exchange {
 public:
  virtual ~Exchange() = default;

  uint64_t end_chunk() const { return end_; }
  // Returns whether consume() reads the slot of `peer`.
  virtual bool reads_from(int /*peer*/) const { return true; }
  // Returns whether finish() reads the results that every consume() leaves in the slots.
  virtual bool has_two_phases() const { return false; }

  virtual void publish(uint64_t chunk) = 0;
  virtual void consume(uint64_t chunk) = 0;
  virtual void finish(uint64_t /*chunk*/) {}

 protected:
  Exchange(SharedRing& ring, uint64_t first) : ring_(ring), first_(first), end_(first) {}

  SharedRing& ring_;
  uint64_t first_;
  uint64_t end_;
};

// Makes the exchange for contiguous CPU tensors, which it keeps alive. `first` is the index of the
// first chunk in the ring.
std::unique_ptr<Exchange> make_exchange(SharedRing& ring, uint64_t first,
                                        const Collective& collective);

}  // namespace zeroth::comm
