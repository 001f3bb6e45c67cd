#include "zero/grad_landing.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace zeroth::zero {

GradLanding::GradLanding(std::shared_ptr<device::HostLink> link)
    : GradLanding(std::move(link), Options()) {}

GradLanding::GradLanding(std::shared_ptr<device::HostLink> link, const Options& options)
    : options_(options), buffers_(std::move(link), options.host, /*most=*/1) {
  // All of one size, so that none is replaced by a larger one.
  buffers_.expect(options.piece_bytes);
}

torch::Tensor GradLanding::shard(int64_t numel, torch::Dtype dtype) {
  shard_bytes_ += numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (options_.host.is_cpu()) return buffers_.link().memory.zeros(numel, dtype);
  return at::zeros({numel}, torch::TensorOptions(options_.host).dtype(dtype));
}

void GradLanding::begin() {
  while (earlier_ > 0) take_in_oldest();
  earlier_ = in_buffers_;
}

device::Point GradLanding::land(const torch::Tensor& from, const torch::Tensor& to, bool add,
                                const device::Point& after) {
  device::Point end;
  if (!add && from.scalar_type() == to.scalar_type()) {
    end = copies().copy(to, from, {after});
    arrivals_.push_back({.buffer = {.free = end}, .from = from, .to = to});
  } else {
    const int64_t step =
        std::max(options_.piece_bytes / static_cast<int64_t>(from.element_size()), int64_t{1});
    for (int64_t begin = 0; begin < from.numel(); begin += step) {
      const int64_t length = std::min(step, from.numel() - begin);
      const torch::Tensor piece = from.narrow(0, begin, length);
      arrivals_.push_back({.buffer = buffers_.fetch(piece, {after, end}),
                           .from = piece,
                           .to = to.narrow(0, begin, length),
                           .add = add});
      end = arrivals_.back().buffer.free;
      ++in_buffers_;
    }
  }
  // When the copies are under way: the host adds beside them.
  while (!arrivals_.empty() && copies().reached(arrivals_.front().buffer.free)) take_in_oldest();
  return end;
}

void GradLanding::take_in_oldest() {
  copies().wait(arrivals_.front().buffer.free);
  Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  if (!arrival.buffer.values.defined()) return;
  --in_buffers_;
  if (earlier_ > 0) --earlier_;
  const torch::NoGradGuard no_grad;
  arrival.add ? arrival.to.add_(arrival.buffer.values) : arrival.to.copy_(arrival.buffer.values);
  buffers_.give(std::move(arrival.buffer));
}

void GradLanding::finish() {
  while (!arrivals_.empty()) take_in_oldest();
}

}  // namespace zeroth::zero
