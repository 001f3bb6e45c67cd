// The progress engine of one rank's shared-memory groups. Bytes move only inside the rank's calls:
// a rank that waits on one of its groups moves the bytes of all. Otherwise two ranks that wait on
// different groups would starve each other, as each needs data that the other has not put into its
// slots. In a run on several nodes it also drives the traffic between them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/groups/doorbells.h"
#include "comm/groups/peer_reports.h"

namespace zeroth::comm {

class ProgressEngine {
 public:
  // A ProgressClient is one group of the rank, which the engine drives as long as it lives.
  class ProgressClient {
   public:
    explicit ProgressClient(std::shared_ptr<ProgressEngine> progress)
        : progress_(std::move(progress)) {
      progress_->clients_.push_back(this);
    }
    virtual ~ProgressClient() { std::erase(progress_->clients_, this); }
    ProgressClient(const ProgressClient&) = delete;
    ProgressClient& operator=(const ProgressClient&) = delete;

    virtual bool can_work() = 0;
    // Does one unit of work; returns false if none can be done now.
    virtual bool work() = 0;

   protected:
    std::shared_ptr<ProgressEngine> progress_;
  };

  // `reports`: those of a run on several nodes; null: the run has one node.
  explicit ProgressEngine(Doorbells doorbells, std::shared_ptr<PeerReports> reports = nullptr)
      : doorbells_(std::move(doorbells)), reports_(std::move(reports)) {}

  PeerReports* reports() const { return reports_.get(); }

  // Does one unit of work of any group; returns false if no group has any.
  bool work() {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](ProgressClient* client) { return client->work(); });
  }
  // Sleeps until a group has work to do; returns false after `limit`.
  bool wait(std::chrono::nanoseconds limit) {
    return doorbells_.wait([this] { return can_work(); }, limit);
  }
  // Sleeps until ready() returns true or a group has work to do; returns false after `limit`.
  bool wait_or(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
    return doorbells_.wait([&] { return ready() || can_work(); }, limit);
  }
  // Returns a function that ends such a sleep of this rank. It may be called on any thread, also
  // after this object is destroyed.
  std::function<void()> waker() const {
    return [doorbells = doorbells_]() mutable { doorbells.wake(); };
  }
  bool can_work() {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](ProgressClient* m) { return m->can_work(); });
  }
  // Notifies `rank` of this node that it has more to do.
  void wake(int rank) { doorbells_.notify(rank); }

 private:
  Doorbells doorbells_;
  std::shared_ptr<PeerReports> reports_;
  std::vector<ProgressClient*> clients_;
};

}  // namespace zeroth::comm
