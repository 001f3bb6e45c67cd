#include "zero/gradient_offload.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/machine/parallel.h"

namespace zeroth::zero {

// An Adder adds arrived chunks one after the other. Its thread calls no device, keeps no tensor
// alive, and starts with the first chunk.
class GradientOffload::Adder {
 public:
  // Queues an arrival, which must live until added() has counted it.
  void add(const Arrival& arrival) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(&arrival);
    }
    changed_.notify_all();
    if (!thread_.joinable())
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  // Returns the number of chunks so far, failed ones included; throws their error, once.
  int64_t added() {
    const std::lock_guard lock(mutex_);
    failure_.rethrow();
    return added_;
  }
  void wait_until_added(int64_t chunks) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return added_ >= chunks; });
    failure_.rethrow();
  }

 private:
  void run(const std::stop_token& stop) {
    (void)at::get_num_threads();
    reserve_one_thread();  // for the thread that queues work on the device
    const torch::NoGradGuard no_grad;
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !queue_.empty(); }) && !stop.stop_requested()) {
      const Arrival& arrival = *queue_.front();
      queue_.pop_front();
      lock.unlock();
      offload::DeferredError failure;
      failure.guard([&] {
        const torch::Tensor& values = arrival.buffer.values;
        arrival.add ? arrival.to.add_(values) : arrival.to.copy_(values);
      });
      lock.lock();
      failure_.guard([&] { failure.rethrow(); });
      ++added_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<const Arrival*> queue_;
  int64_t added_ = 0;
  offload::DeferredError failure_;
  std::jthread thread_;  // stops, and is joined, before the members above are destroyed
};

GradientOffload::GradientOffload(std::shared_ptr<device::HostLink> link,
                                 const GradientOffloadOptions& options)
    : options_(options),
      adder_(std::make_unique<Adder>()),
      buffers_(std::move(link), options.host, /*max_buffers=*/1) {
  // All have one size, so that none is replaced by a larger one.
  buffers_.reserve(options.chunk_bytes);
}

GradientOffload::~GradientOffload() = default;

torch::Tensor GradientOffload::allocate_shard(int64_t numel, torch::Dtype dtype) {
  shard_bytes_ += numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (options_.host.is_cpu()) return buffers_.link().memory.zeros(numel, dtype);
  return at::zeros({numel}, torch::TensorOptions(options_.host).dtype(dtype));
}

void GradientOffload::begin_gradient() {
  wait_until_added(earlier_);
  earlier_ = in_buffers_;
}

device::StreamEvent GradientOffload::start_copy(const torch::Tensor& from, const torch::Tensor& to,
                                                bool add, const device::StreamEvent& after) {
  device::StreamEvent end;
  if (!add && from.scalar_type() == to.scalar_type()) {
    end = copies().copy(to, from, {after});
    arrivals_.push_back({.buffer = {.free = end}, .from = from, .to = to});
  } else {
    const int64_t step =
        std::max(options_.chunk_bytes / static_cast<int64_t>(from.element_size()), int64_t{1});
    for (int64_t begin = 0; begin < from.numel(); begin += step) {
      const int64_t length = std::min(step, from.numel() - begin);
      const torch::Tensor chunk = from.narrow(0, begin, length);
      arrivals_.push_back({.buffer = buffers_.fetch(chunk, {after, end}),
                           .from = chunk,
                           .to = to.narrow(0, begin, length),
                           .add = add});
      end = arrivals_.back().buffer.free;
      ++in_buffers_;
    }
  }
  while (!arrivals_.empty() && copies().is_complete(arrivals_.front().buffer.free)) accept_oldest();
  release_added();
  return end;
}

void GradientOffload::accept_oldest() {
  copies().wait(arrivals_.front().buffer.free);
  Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  if (!arrival.buffer.values.defined()) return;
  adding_.push_back(std::move(arrival));
  adder_->add(adding_.back());
  ++accepted_;
}

void GradientOffload::release_added() {
  for (const int64_t added = adder_->added(); released_ < added; ++released_) {
    buffers_.release(std::move(adding_.front().buffer));
    adding_.pop_front();
  }
}

void GradientOffload::wait_until_added(int64_t chunks) {
  while (accepted_ < chunks) accept_oldest();
  adder_->wait_until_added(chunks);
  release_added();
}

void GradientOffload::finish() {
  while (!arrivals_.empty()) accept_oldest();
  wait_until_added(in_buffers_);
}

}  // namespace zeroth::zero
