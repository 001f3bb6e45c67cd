// The queue of collectives that consist of others, within nodes and between nodes. Each of these
// groups sees its part of the work in the order in which the collectives were issued, whichever
// ends first, and so in one order on all of its ranks.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/groups/progress_engine.h"
#include "comm/groups/stage_plan.h"

namespace zeroth::comm {

class StageQueue final : public ProgressEngine::ProgressClient {
 public:
  class Operation;

  using ProgressClient::ProgressClient;

  // Queues the steps and begins those that can begin.
  std::shared_ptr<Operation> issue(std::vector<StageStep> steps);
  // Blocks until all steps of the operation have ended. Throws the error of a step; after that
  // every call throws.
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
    std::deque<QueuedStep> queued;  // steps not begun
    std::deque<QueuedStep> begun;   // steps begun and not ended
  };

  static bool can_end(const StepQueue& queue);
  static bool can_begin(const StepQueue& queue);
  void begin(StepQueue& queue);
  void end(StepQueue& queue, const QueuedStep& item);
  // Returns a step that has begun and that `operation` waits for.
  QueuedStep blocking_step(Operation& operation);
  template <typename Do>
  void run_or_fail(Do&& act);

  std::array<StepQueue, 3> queues_;
  std::string failed_;  // reason of the failure; empty: none
};

}  // namespace zeroth::comm
