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

#include "comm/doorbells.h"
#include "comm/peer_reports.h"

namespace zeroth::comm {

class ProgressEngine {
 public:
  // Of one group.
  class ProgressClient {
   public:
    virtual ~ProgressClient() = default;
    virtual bool can_work() = 0;
    // Does one piece of work; false when there is none that could be done now.
    virtual bool work() = 0;
  };

  // `reports`: of a run on several machines; null: it has one.
  explicit ProgressEngine(Doorbells doorbells, std::shared_ptr<PeerReports> reports = nullptr)
      : doorbells_(std::move(doorbells)), reports_(std::move(reports)) {}

  PeerReports* reports() const { return reports_.get(); }

  void add(ProgressClient& client) { clients_.push_back(&client); }
  void remove(ProgressClient& client) { std::erase(clients_, &client); }

  // A piece of work of any group; false when none has one.
  bool work() {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](ProgressClient* client) { return client->work(); });
  }
  // Sleeps until a group has work to do; false after `limit`.
  bool wait(std::chrono::nanoseconds limit) {
    return doorbells_.wait([this] { return can_work(); }, limit);
  }
  // The same, or until ready().
  bool wait_or(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
    return doorbells_.wait([&] { return ready() || can_work(); }, limit);
  }
  // Ends such a sleep of this rank. May be called on any thread, and after this is gone.
  std::function<void()> waker() const {
    return [doorbells = doorbells_]() mutable { doorbells.wake(); };
  }
  bool can_work() {
    return std::any_of(clients_.begin(), clients_.end(),
                       [](ProgressClient* m) { return m->can_work(); });
  }
  // `rank` of the host has more to do now.
  void wake(int rank) { doorbells_.notify(rank); }

 private:
  Doorbells doorbells_;
  std::shared_ptr<PeerReports> reports_;
  std::vector<ProgressClient*> clients_;
};

}  // namespace zeroth::comm
