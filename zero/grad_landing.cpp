#include "zero/grad_landing.h"

#include <algorithm>
#include <utility>

namespace zeroth::zero {

GradLanding::GradLanding(std::shared_ptr<offload::HostLink> link)
    : GradLanding(std::move(link), Options()) {}

GradLanding::GradLanding(std::shared_ptr<offload::HostLink> link, const Options& options)
    : link_(std::move(link)), options_(options), slots_(*link_, torch::kCPU, options.buffers) {}

offload::Point GradLanding::land(const torch::Tensor& from, const torch::Tensor& to, bool add) {
  while (!arrivals_.empty() && link_->copies->reached(arrivals_.front().end)) {
    take_in_oldest();
  }
  if (!add && from.scalar_type() == to.scalar_type()) {
    const offload::Point end = link_->copies->copy(to, from, {link_->copies->now()});
    arrivals_.push_back({end});
    return end;
  }
  const int64_t step =
      std::max(options_.piece_bytes / static_cast<int64_t>(from.element_size()), int64_t{1});
  offload::Point end;
  for (int64_t begin = 0; begin < from.numel(); begin += step) {
    const int64_t length = std::min(step, from.numel() - begin);
    end = land_piece(from.narrow(0, begin, length), to.narrow(0, begin, length), add, end);
  }
  return end;
}

offload::Point GradLanding::land_piece(const torch::Tensor& from, const torch::Tensor& to, bool add,
                                       const offload::Point& after) {
  while (slots_taken_ >= options_.buffers) take_in_oldest();
  // All of one size, so that none is replaced by a larger one.
  Arrival arrival{.end = {}, .slot = slots_.take(options_.piece_bytes), .to = to, .add = add};
  ++slots_taken_;
  arrival.values = arrival.slot.view(from.numel(), from.scalar_type());
  arrival.end = link_->copies->copy(arrival.values, from, {link_->copies->now(), after});
  arrivals_.push_back(std::move(arrival));
  return arrivals_.back().end;
}

void GradLanding::take_in_oldest() {
  Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  link_->copies->wait(arrival.end);
  if (!arrival.to.defined()) return;
  const torch::NoGradGuard no_grad;
  arrival.add ? arrival.to.add_(arrival.values) : arrival.to.copy_(arrival.values);
  slots_.give(std::move(arrival.slot));
  --slots_taken_;
}

void GradLanding::finish() {
  while (!arrivals_.empty()) take_in_oldest();
}

}  // namespace zeroth::zero
