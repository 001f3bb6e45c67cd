#include "zero/grad_landing.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace zeroth::zero {

GradLanding::GradLanding(std::shared_ptr<device::HostLink> link)
    : GradLanding(std::move(link), Options()) {}

GradLanding::GradLanding(std::shared_ptr<device::HostLink> link, const Options& options)
    : link_(std::move(link)), options_(options), slots_(*link_, options.host, /*most=*/1) {}

torch::Tensor GradLanding::shard(int64_t numel, torch::Dtype dtype) {
  shard_bytes_ += numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (options_.host.is_cpu()) return link_->memory.zeros(numel, dtype);
  return at::zeros({numel}, torch::TensorOptions(options_.host).dtype(dtype));
}

void GradLanding::begin() {
  while (earlier_ > 0) take_in_oldest();
  earlier_ = in_slots_;
}

device::Point GradLanding::land(const torch::Tensor& from, const torch::Tensor& to, bool add,
                                const device::Point& after) {
  device::Point end;
  if (!add && from.scalar_type() == to.scalar_type()) {
    end = copies().copy(to, from, {after});
    arrivals_.push_back({end, from, to});
  } else {
    const int64_t step =
        std::max(options_.piece_bytes / static_cast<int64_t>(from.element_size()), int64_t{1});
    for (int64_t begin = 0; begin < from.numel(); begin += step) {
      const int64_t length = std::min(step, from.numel() - begin);
      end =
          land_piece(from.narrow(0, begin, length), to.narrow(0, begin, length), add, {after, end});
    }
  }
  // When the copies are under way: the host adds beside them.
  while (!arrivals_.empty() && copies().reached(arrivals_.front().end)) take_in_oldest();
  return end;
}

device::Point GradLanding::land_piece(const torch::Tensor& from, const torch::Tensor& to, bool add,
                                      const std::vector<device::Point>& after) {
  // All of one size, so that none is replaced by a larger one.
  Arrival arrival{.end = {}, .from = from, .to = to, .add = add};
  arrival.slot = slots_.take(options_.piece_bytes);
  arrival.values = arrival.slot.view(from.numel(), from.scalar_type());
  arrival.end = copies().copy(arrival.values, from, after);
  arrivals_.push_back(std::move(arrival));
  ++in_slots_;
  return arrivals_.back().end;
}

void GradLanding::take_in_oldest() {
  copies().wait(arrivals_.front().end);
  Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  if (!arrival.values.defined()) return;
  --in_slots_;
  if (earlier_ > 0) --earlier_;
  const torch::NoGradGuard no_grad;
  arrival.add ? arrival.to.add_(arrival.values) : arrival.to.copy_(arrival.values);
  slots_.give(std::move(arrival.slot));
}

void GradLanding::finish() {
  while (!arrivals_.empty()) take_in_oldest();
}

}  // namespace zeroth::zero
