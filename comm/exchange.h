// A collective between the ranks of a host, cut into pieces that pass through the slots of a
// SharedRing. Knows what is copied where, nothing of waiting.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "comm/group.h"
#include "comm/shared_ring.h"

namespace zeroth::comm {

// For each piece: publish() on every rank, then consume(), then, with two rounds, finish().
class Exchange {
 public:
  virtual ~Exchange() = default;

  uint64_t end_chunk() const { return end_; }
  // consume() reads the slot of `peer`.
  virtual bool reads_from(int /*peer*/) const { return true; }
  // finish() reads what every consume() has left in the slots.
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

// Of contiguous CPU tensors, which it keeps alive. `first` is the first piece's number in the ring.
std::unique_ptr<Exchange> make_exchange(SharedRing& ring, uint64_t first,
                                        const Collective& collective);

}  // namespace zeroth::comm
