// Doorbells in shared memory, one for each rank of a node: a rank that waits sleeps on its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/nodes/shared_segment.h"

namespace zeroth::comm {

class Doorbells {
 public:
  static size_t bytes(int ranks);

  // Uses bytes() bytes of the segment (which the doorbells keep alive), starting at `offset`.
  Doorbells(std::shared_ptr<SharedSegment> segment, size_t offset, int rank, int ranks);

  // Wakes `rank` if it sleeps. It then sees what this rank stored before (sequentially consistent).
  void notify(int rank);

  // Wakes this rank itself. Safe to call from any thread of its process.
  void wake() { notify(rank_); }

  // Blocks until ready() returns true, and returns true; returns false after `limit`. ready() reads
  // what peers store before they notify.
  bool wait(const std::function<bool()>& ready, std::chrono::nanoseconds limit);

 private:
  struct alignas(64) Doorbell {
    std::atomic<uint32_t> signal;  // the word on which the rank sleeps
    std::atomic<bool> is_sleeping;
  };

  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  std::span<Doorbell> doorbells_;
};

}  // namespace zeroth::comm
