// Bells in shared memory, one for each rank of a host: who waits for others sleeps on his own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/shared_segment.h"

namespace zeroth::comm {

class Doorbells {
 public:
  static size_t bytes(int ranks);

  // Uses bytes() bytes of the segment (which the bells keep alive) from `offset` on.
  Doorbells(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, int ranks);

  // Wakes `rank` if it sleeps. What this rank stored before, sequentially consistent, it will see.
  void notify(int rank);

  // Wakes this rank itself. From any thread of its process.
  void wake();

  // Returns ready(), true as soon as it is so, false after `limit`. ready() looks at what others
  // store before they ring.
  bool wait(const std::function<bool()>& ready, std::chrono::nanoseconds limit);

 private:
  struct alignas(64) Doorbell {
    std::atomic<uint32_t> signal;  // the word that the rank sleeps on
    std::atomic<bool> is_sleeping;
  };

  void notify(Doorbell& doorbell);

  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  std::span<Doorbell> doorbells_;
};

}  // namespace zeroth::comm
