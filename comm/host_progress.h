// What moves the bytes of one rank's shared-memory groups. They move only inside the rank's calls:
// whoever waits on one of his groups moves the bytes of all. Else two ranks that wait on different
// groups would starve each other, each needing what the other has not put into its slots yet. With
// several machines it also drives what goes between them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/host_reports.h"
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

  // `reports`: of a run on several machines; null: it has one.
  explicit HostProgress(RankBells bells, std::shared_ptr<HostReports> reports = nullptr)
      : bells_(std::move(bells)), reports_(std::move(reports)) {}

  HostReports* reports() const { return reports_.get(); }

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
  // The same, or until ready().
  bool wait_or(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
    return bells_.wait([&] { return ready() || can_work(); }, limit);
  }
  // Ends such a sleep of this rank. May be called on any thread, and after this is gone.
  std::function<void()> waker() const {
    return [bells = bells_]() mutable { bells.wake(); };
  }
  bool can_work() {
    return std::any_of(movers_.begin(), movers_.end(), [](Mover* m) { return m->can_work(); });
  }
  // `rank` of the host has more to do now.
  void wake(int rank) { bells_.ring(rank); }

 private:
  RankBells bells_;
  std::shared_ptr<HostReports> reports_;
  std::vector<Mover*> movers_;
};

}  // namespace zeroth::comm
