#include "comm/groups/stage_queue.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"

namespace zeroth::comm {

class StageQueue::Operation : public std::enable_shared_from_this<StageQueue::Operation> {
 public:
  struct StepState {
    CollectiveHandle pending;
    bool begun = false;
    bool is_awaited = false;  // by a blocking call, which will end it
    bool ended = false;
  };

  explicit Operation(std::vector<StageStep> its) : steps(std::move(its)), states(steps.size()) {}

  bool is_ready(size_t step) const {
    const int after = steps[step].after;
    return after < 0 || states[static_cast<size_t>(after)].ended;
  }
  size_t first_left() const {
    const auto left = std::find_if(states.begin(), states.end(),
                                   [](const StepState& state) { return !state.ended; });
    return static_cast<size_t>(left - states.begin());
  }

  std::vector<StageStep> steps;
  std::vector<StepState> states;
};

bool StageQueue::done(const Operation& operation) {
  return operation.first_left() == operation.steps.size();
}

std::shared_ptr<StageQueue::Operation> StageQueue::issue(std::vector<StageStep> steps) {
  if (!failed_.empty()) throw Error("{}", failed_);
  auto operation = std::make_shared<Operation>(std::move(steps));
  for (size_t step = 0; step < operation->steps.size(); ++step)
    queues_[static_cast<size_t>(operation->steps[step].stage)].queued.push_back({operation, step});
  while (work()) {
  }
  return operation;
}

bool StageQueue::can_end(const StepQueue& queue) {
  if (queue.begun.empty()) return false;
  const auto& [operation, step] = queue.begun.front();
  return !operation->states[step].is_awaited && operation->states[step].pending.ready();
}

bool StageQueue::can_begin(const StepQueue& queue) {
  return !queue.queued.empty() &&
         queue.queued.front().operation->is_ready(queue.queued.front().step);
}

bool StageQueue::can_work() {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const StepQueue& queue) { return can_end(queue) || can_begin(queue); });
}

bool StageQueue::work() {
  for (StepQueue& queue : queues_) {
    if (can_end(queue)) {
      run_or_fail([&] { end(queue, QueuedStep(queue.begun.front())); });
      return true;
    }
    if (can_begin(queue)) {
      run_or_fail([&] { begin(queue); });
      return true;
    }
  }
  return false;
}

void StageQueue::complete(Operation& operation) {
  while (!done(operation)) {
    if (!failed_.empty()) throw Error("{}", failed_);
    if (work()) continue;
    const QueuedStep item = blocking_step(operation);
    StepQueue& queue = queues_[static_cast<size_t>(item.operation->steps[item.step].stage)];
    item.operation->states[item.step].is_awaited = true;
    run_or_fail([&] { end(queue, item); });
  }
}

void StageQueue::begin(StepQueue& queue) {
  const QueuedStep item = std::move(queue.queued.front());
  queue.queued.pop_front();
  Operation::StepState& state = item.operation->states[item.step];
  state.pending = item.operation->steps[item.step].begin();
  state.begun = true;
  queue.begun.push_back(item);
}

// Ends a step. Its wait may block, and drives other transfers meanwhile.
void StageQueue::end(StepQueue& queue, const QueuedStep& item) {
  Operation::StepState& state = item.operation->states[item.step];
  state.pending.wait();
  std::erase_if(queue.begun, [&](const QueuedStep& other) {
    return other.operation == item.operation && other.step == item.step;
  });
  StageStep& step = item.operation->steps[item.step];
  if (step.end) step.end();
  step.begin = {};  // releases the tensors that it holds
  step.end = {};
  state.ended = true;
}

StageQueue::QueuedStep StageQueue::blocking_step(Operation& operation) {
  std::shared_ptr<Operation> of = operation.shared_from_this();
  for (;;) {
    const size_t step = of->first_left();
    if (of->states[step].begun) return {std::move(of), step};
    // The step that it waits for is earlier in the same queue and belongs to an earlier operation.
    const StepQueue& queue = queues_[static_cast<size_t>(of->steps[step].stage)];
    if (!queue.begun.empty()) return queue.begun.front();
    ZEROTH_CHECK(!queue.queued.empty() && queue.queued.front().operation != of,
                 "step {} of {} is not queued", step, of->steps.size());
    of = queue.queued.front().operation;
  }
}

template <typename Do>
void StageQueue::run_or_fail(Do&& act) {
  try {
    act();
  } catch (const std::exception& cause) {
    failed_ = cause.what();
    throw;
  }
}

}  // namespace zeroth::comm
