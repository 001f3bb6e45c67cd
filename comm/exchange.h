// A collective between the ranks of a host, cut into pieces that pass through the slots of a
// SharedRing. Knows what is copied where, nothing of waiting.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "comm/group.h"
#include "comm/shared_ring.h"

namespace zeroth::comm {

// For each piece: put() on every rank, then take(), then, with two rounds, finish().
class Exchange {
 public:
  virtual ~Exchange() = default;

  uint64_t end_piece() const { return end_; }
  // take() reads the slot of `peer`.
  virtual bool takes_from(int /*peer*/) const { return true; }
  // finish() reads what every take() has left in the slots.
  virtual bool has_two_rounds() const { return false; }

  virtual void put(uint64_t piece) = 0;
  virtual void take(uint64_t piece) = 0;
  virtual void finish(uint64_t /*piece*/) {}

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
