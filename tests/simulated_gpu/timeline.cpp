#include "tests/simulated_gpu/timeline.h"

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace zeroth::simulated {
namespace {

constexpr int kQueriesPerStep = 100;

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
  const auto mark = std::make_shared<Place>();
  mark->stream = stream;
  push(stream, {.work = nullptr, .passes = mark, .waits = nullptr});
  return mark;
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
  const std::lock_guard lock(mutex_);
  while (!mark->passed) step(mark->stream);
}

void Timeline::finish_all() {
  ++waits_;
  const std::lock_guard lock(mutex_);
  for (auto& [stream, items] : streams_) {
    while (!items.empty()) step(stream);
  }
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

// Of the stream, or of those that it waits for. Work that throws ends the process with its message:
// on a device that has failed, too, nothing goes on.
void Timeline::step(StreamNumber stream) noexcept {
  std::deque<Item>& items = streams_.at(stream);
  ZEROTH_CHECK(!items.empty(), "a mark of stream {} that is not in it", stream);
  if (items.front().waits && !items.front().waits->passed) return step(items.front().waits->stream);
  const Item item = std::move(items.front());
  items.pop_front();
  if (item.passes) {
    item.passes->seconds = now();
    item.passes->passed = true;
  }
  if (!item.work) return;
  running_ = true;
  item.work();
  running_ = false;
}

void Timeline::run_while_possible(StreamNumber stream) {
  while (can_step(stream)) step(stream);
}

void Timeline::run_as_paced() {
  switch (pace_) {
    case Pace::kLate:
      return;
    case Pace::kDefaultFirst:
      return run_while_possible(kDefaultStream);
    case Pace::kOthersFirst:
      for (auto& [stream, items] : streams_) {
        if (stream != kDefaultStream) run_while_possible(stream);
      }
      return;
    case Pace::kRandom:
      for (auto& [stream, items] : streams_) {
        if (random_() % 8 != 0) continue;
        for (uint64_t steps = random_() % 16; steps > 0 && can_step(stream); --steps) step(stream);
      }
  }
}

}  // namespace zeroth::simulated
