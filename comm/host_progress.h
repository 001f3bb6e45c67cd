// What moves the bytes of one rank's shared-memory groups. They move only inside the rank's calls:
// whoever waits on one of his groups moves the bytes of all. Else two ranks that wait on different
// groups would starve each other, each needing what the other has not put into its slots yet.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "comm/rank_bells.h"

namespace zeroth::comm {

class HostProgress {
 public:
  // Of one group.
  class Mover {
   public:
    virtual ~Mover() = default;
    virtual bool can_work() = 0;
    // Does one piece of work; false when there is none that could be done now.
    virtual bool work() = 0;
  };

  explicit HostProgress(RankBells bells) : bells_(std::move(bells)) {}

  void add(Mover& mover) { movers_.push_back(&mover); }
  void remove(Mover& mover) { std::erase(movers_, &mover); }

  // A piece of work of any group; false when none has one.
  bool work() {
    return std::any_of(movers_.begin(), movers_.end(), [](Mover* mover) { return mover->work(); });
  }
  // Sleeps until a group has work to do; false after `limit`.
  bool wait(std::chrono::nanoseconds limit) {
    return bells_.wait([this] { return can_work(); }, limit);
  }
  bool can_work() {
    return std::any_of(movers_.begin(), movers_.end(), [](Mover* m) { return m->can_work(); });
  }
  // `rank` of the host has more to do now.
  void wake(int rank) { bells_.ring(rank); }

 private:
  RankBells bells_;
  std::vector<Mover*> movers_;
};

}  // namespace zeroth::comm
