// Collectives that are made of others: of those among the ranks of a machine and those between
// machines. Each of these groups sees its part of the work in the order in which the collectives
// were issued, whatever ends first, and so in one order on all of its ranks.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/host_progress.h"

namespace zeroth::comm {

// The groups, each with an order of its own: two among the ranks of a machine, because when a last
// step begins depends on other machines and the first ones of the next collectives do not.
enum class Leg { kIn, kAcross, kOut };

struct LegStep {
  Leg leg;
  int after = -1;  // number of the step, a lower one, that has to have ended before; -1: none
  std::function<Pending()> begin;
  std::function<void()> end = {};  // what is to be done here when it has ended; may be empty
};

class LegQueue final : public HostProgress::Mover {
 public:
  class Job;

  explicit LegQueue(std::shared_ptr<HostProgress> progress);
  ~LegQueue() override;
  LegQueue(const LegQueue&) = delete;
  LegQueue& operator=(const LegQueue&) = delete;

  // Begins what can begin.
  std::shared_ptr<Job> issue(std::vector<LegStep> steps);
  // Blocks until all steps of the job have ended. Throws what a step throws; after that every call
  // throws.
  void complete(Job& job);
  static bool done(const Job& job);

  bool can_work() override;
  bool work() override;

 private:
  struct Item {
    std::shared_ptr<Job> job;
    size_t step;
  };
  struct Lane {
    std::deque<Item> queued;  // not begun
    std::deque<Item> begun;   // not ended
  };

  static bool can_end(const Lane& lane);
  static bool can_begin(const Lane& lane);
  void begin(Lane& lane);
  void end(Lane& lane, const Item& item);
  // One that has begun and that `job` waits for.
  Item blocking(Job& job);
  template <typename Do>
  void or_fail(Do&& act);

  std::shared_ptr<HostProgress> progress_;
  std::array<Lane, 3> lanes_;
  std::string failed_;  // why; empty: it has not
};

}  // namespace zeroth::comm
