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
#include "comm/progress_engine.h"

namespace zeroth::comm {

// The groups, each with an order of its own: two among the ranks of a machine, because when a last
// step begins depends on other machines and the first ones of the next collectives do not.
enum class HierarchicalStage { kIntraFirst, kInterNode, kIntraLast };

struct StageStep {
  HierarchicalStage stage;
  int after = -1;  // number of the step, a lower one, that has to have ended before; -1: none
  std::function<CollectiveHandle()> begin;
  std::function<void()> end = {};  // what is to be done here when it has ended; may be empty
};

class StageQueue final : public ProgressEngine::ProgressClient {
 public:
  class Operation;

  explicit StageQueue(std::shared_ptr<ProgressEngine> progress);
  ~StageQueue() override;
  StageQueue(const StageQueue&) = delete;
  StageQueue& operator=(const StageQueue&) = delete;

  // Begins what can begin.
  std::shared_ptr<Operation> issue(std::vector<StageStep> steps);
  // Blocks until all steps of the job have ended. Throws what a step throws; after that every call
  // throws.
  void complete(Operation& operation);
  static bool done(const Operation& operation);

  bool can_work() override;
  bool work() override;

 private:
  struct QueuedStep {
    std::shared_ptr<Operation> operation;
    size_t step;
  };
  struct StepQueue {
    std::deque<QueuedStep> queued;  // not begun
    std::deque<QueuedStep> begun;   // not ended
  };

  static bool can_end(const StepQueue& queue);
  static bool can_begin(const StepQueue& queue);
  void begin(StepQueue& queue);
  void end(StepQueue& queue, const QueuedStep& item);
  // One that has begun and that `operation` waits for.
  QueuedStep blocking_step(Operation& operation);
  template <typename Do>
  void run_or_fail(Do&& act);

  std::shared_ptr<ProgressEngine> progress_;
  std::array<StepQueue, 3> queues_;
  std::string failed_;  // why; empty: it has not
};

}  // namespace zeroth::comm
