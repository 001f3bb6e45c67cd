// The queue of reductions in flight, oldest first, as many as may overlap with compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

namespace zeroth::zero {

template <typename Reduction>
class InFlight {
 public:
  // Limits the queue: after push() at most `max_reductions` reductions are in flight, and together
  // they hold at most `max_elements` elements unless there is only one. `retire` waits for a
  // reduction and consumes its result; it is called in the order of push().
  InFlight(size_t max_reductions, int64_t max_elements, std::function<void(Reduction)> retire)
      : max_reductions_(max_reductions), max_elements_(max_elements), retire_(std::move(retire)) {}

  void push(Reduction reduction, int64_t elements) {
    queue_.emplace_back(std::move(reduction), elements);
    elements_ += elements;
    while (queue_.size() > max_reductions_ || (queue_.size() > 1 && elements_ > max_elements_))
      retire_oldest();
  }

  bool empty() const { return queue_.empty(); }

  void drain() {
    while (!queue_.empty()) retire_oldest();
  }

 private:
  void retire_oldest() {
    auto [reduction, elements] = std::move(queue_.front());
    queue_.pop_front();
    elements_ -= elements;
    retire_(std::move(reduction));
  }

  size_t max_reductions_;
  int64_t max_elements_;
  std::function<void(Reduction)> retire_;
  std::deque<std::pair<Reduction, int64_t>> queue_;
  int64_t elements_ = 0;
};

}  // namespace zeroth::zero
