#include "comm/leg_queue.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"

namespace zeroth::comm {

class LegQueue::Job : public std::enable_shared_from_this<LegQueue::Job> {
 public:
  struct State {
    Pending pending;
    bool begun = false;
    bool waited_for = false;  // by a call that blocks, which will end it
    bool ended = false;
  };

  explicit Job(std::vector<LegStep> its) : steps(std::move(its)), states(steps.size()) {}

  bool may_begin(size_t step) const {
    const int after = steps[step].after;
    return after < 0 || states[static_cast<size_t>(after)].ended;
  }
  size_t first_left() const {
    const auto left =
        std::find_if(states.begin(), states.end(), [](const State& state) { return !state.ended; });
    return static_cast<size_t>(left - states.begin());
  }

  std::vector<LegStep> steps;
  std::vector<State> states;
};

LegQueue::LegQueue(std::shared_ptr<HostProgress> progress) : progress_(std::move(progress)) {
  progress_->add(*this);
}

LegQueue::~LegQueue() {
  progress_->remove(*this);
}

bool LegQueue::done(const Job& job) {
  return job.first_left() == job.steps.size();
}

std::shared_ptr<LegQueue::Job> LegQueue::issue(std::vector<LegStep> steps) {
  if (!failed_.empty()) throw Error("{}", failed_);
  auto job = std::make_shared<Job>(std::move(steps));
  for (size_t step = 0; step < job->steps.size(); ++step)
    lanes_[static_cast<size_t>(job->steps[step].leg)].queued.push_back({job, step});
  while (work()) {
  }
  return job;
}

bool LegQueue::can_end(const Lane& lane) {
  if (lane.begun.empty()) return false;
  const auto& [job, step] = lane.begun.front();
  return !job->states[step].waited_for && job->states[step].pending.ready();
}

bool LegQueue::can_begin(const Lane& lane) {
  return !lane.queued.empty() && lane.queued.front().job->may_begin(lane.queued.front().step);
}

bool LegQueue::can_work() {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return can_end(lane) || can_begin(lane); });
}

bool LegQueue::work() {
  for (Lane& lane : lanes_) {
    if (can_end(lane)) {
      or_fail([&] { end(lane, Item(lane.begun.front())); });
      return true;
    }
    if (can_begin(lane)) {
      or_fail([&] { begin(lane); });
      return true;
    }
  }
  return false;
}

void LegQueue::complete(Job& job) {
  while (!done(job)) {
    if (!failed_.empty()) throw Error("{}", failed_);
    if (work()) continue;
    const Item item = blocking(job);
    Lane& lane = lanes_[static_cast<size_t>(item.job->steps[item.step].leg)];
    item.job->states[item.step].waited_for = true;
    or_fail([&] { end(lane, item); });
  }
}

void LegQueue::begin(Lane& lane) {
  const Item item = std::move(lane.queued.front());
  lane.queued.pop_front();
  Job::State& state = item.job->states[item.step];
  state.pending = item.job->steps[item.step].begin();
  state.begun = true;
  lane.begun.push_back(item);
}

// Its wait may block, and move others meanwhile.
void LegQueue::end(Lane& lane, const Item& item) {
  Job::State& state = item.job->states[item.step];
  state.pending.wait();
  std::erase_if(lane.begun, [&](const Item& other) {
    return other.job == item.job && other.step == item.step;
  });
  LegStep& step = item.job->steps[item.step];
  if (step.end) step.end();
  step.begin = {};  // with the tensors that it holds
  step.end = {};
  state.ended = true;
}

LegQueue::Item LegQueue::blocking(Job& job) {
  std::shared_ptr<Job> of = job.shared_from_this();
  for (;;) {
    const size_t step = of->first_left();
    if (of->states[step].begun) return {std::move(of), step};
    // What it waits for is in the same lane, before it, and belongs to an earlier job.
    const Lane& lane = lanes_[static_cast<size_t>(of->steps[step].leg)];
    if (!lane.begun.empty()) return lane.begun.front();
    ZEROTH_CHECK(!lane.queued.empty() && lane.queued.front().job != of,
                 "step {} of {} is not queued", step, of->steps.size());
    of = lane.queued.front().job;
  }
}

template <typename Do>
void LegQueue::or_fail(Do&& act) {
  try {
    act();
  } catch (const std::exception& cause) {
    failed_ = cause.what();
    throw;
  }
}

}  // namespace zeroth::comm
