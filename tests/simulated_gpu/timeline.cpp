#include "tests/simulated_gpu/timeline.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tests/simulated_gpu/devices.h"

namespace zeroth::simulated {
namespace {

constexpr int kQueriesPerStep = 100;
constexpr uint64_t kMaxDelay = 32;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Timeline& Timeline::get() {
  static auto* timeline = new Timeline;  // outlives every tensor
  return *timeline;
}

Timeline::Timeline() {
  const char* text = std::getenv("ZEROTH_SIMULATED_PACE");
  const std::string_view pace = text == nullptr ? "late" : text;
  if (pace == "late") {
    pace_ = Pace::kLate;
  } else if (pace == "default-first") {
    pace_ = Pace::kDefaultFirst;
  } else if (pace == "others-first") {
    pace_ = Pace::kOthersFirst;
  } else {
    pace_ = Pace::kRandom;
    random_.seed(std::stoull(std::string(pace)));
  }
}

void Timeline::queue(StreamNumber stream, std::function<void()> work) {
  push(stream, {.work = std::move(work), .passes = nullptr, .waits = nullptr});
}

Timeline::Mark Timeline::mark(StreamNumber stream) {
  Mark mark = promise();
  this->mark(stream, mark);
  return mark;
}

void Timeline::mark(StreamNumber stream, const Mark& promised) {
  const std::lock_guard lock(mutex_);
  promised->stream = stream;
  push(stream, {.work = nullptr, .passes = promised, .waits = nullptr});
  promise_kept_.notify_all();
}

void Timeline::order(StreamNumber stream, const Mark& mark) {
  push(stream, {.work = nullptr, .passes = nullptr, .waits = mark});
}

bool Timeline::query(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (!mark->passed && ++vain_queries_ % kQueriesPerStep == 0) step(mark->stream);
  return mark->passed;
}

void Timeline::finish(const Mark& mark) {
  ++waits_;
  std::unique_lock lock(mutex_);
  while (!mark->passed) step_or_wait(mark->stream, lock);
}

void Timeline::finish_device(int device) {
  ++waits_;
  std::unique_lock lock(mutex_);
  for (auto& [stream, items] : streams_) {
    while (device_of(stream) == device && !items.empty()) step_or_wait(stream, lock);
  }
}

void Timeline::seed(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  pace_ = Pace::kRandom;
  random_.seed(seed);
}

void Timeline::delay(StreamNumber stream) {
  const std::lock_guard lock(mutex_);
  if (pace_ != Pace::kRandom) return;
  for (uint64_t items = random_() % kMaxDelay; items > 0; --items) push(stream, {});
}

void Timeline::push(StreamNumber stream, Item item) {
  const std::lock_guard lock(mutex_);
  ZEROTH_CHECK(!running_, "work of stream {} that queues or waits for work", stream);
  streams_[stream].push_back(std::move(item));
  run_as_paced();
}

bool Timeline::can_step(StreamNumber stream) const {
  const std::deque<Item>& items = streams_.at(stream);
  return !items.empty() && (!items.front().waits || items.front().waits->passed);
}

// Of the stream, or of those that it waits for; `before` of them wait for it. False where one waits
// for a promise, or for itself: streams that wait for each other hang. Work that throws ends the
// process with its message: on a device that has failed, too, nothing goes on.
bool Timeline::step(StreamNumber stream, size_t before) noexcept {
  if (stream == kNowhere || before > streams_.size()) return false;
  std::deque<Item>& items = streams_.at(stream);
  ZEROTH_CHECK(!items.empty(), "a mark of stream {} that is not in it", stream);
  const Mark waits = items.front().waits;
  if (waits && !waits->passed) return step(waits->stream, before + 1);
  const Item item = std::move(items.front());
  items.pop_front();
  if (item.passes) {
    item.passes->seconds = now();
    item.passes->passed = true;
  }
  if (!item.work) return true;
  running_ = true;
  item.work();
  running_ = false;
  return true;
}

void Timeline::step_or_wait(StreamNumber stream, std::unique_lock<std::recursive_mutex>& lock) {
  if (!step(stream)) promise_kept_.wait(lock);
}

void Timeline::run_while_possible(StreamNumber stream) {
  while (can_step(stream)) step(stream);
}

void Timeline::run_as_paced() {
  switch (pace_) {
    case Pace::kLate:
      return;
    case Pace::kDefaultFirst:
    case Pace::kOthersFirst:
      for (auto& [stream, items] : streams_) {
        if (is_default(stream) == (pace_ == Pace::kDefaultFirst)) run_while_possible(stream);
      }
      return;
    case Pace::kRandom:  // as much in all, however many devices are given work
      for (auto& [stream, items] : streams_) {
        if (random_() % (8 * static_cast<uint64_t>(device_count())) != 0) continue;
        for (uint64_t steps = random_() % 16; steps > 0 && can_step(stream); --steps) step(stream);
      }
  }
}

}  // namespace zeroth::simulated
