// The reduction of gradients over the ranks that hold them: in buckets of bounded size, with one or
// two gradients in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups/group.h"
#include "device/tensor.h"
#include "zero/buffer_pool.h"
#include "zero/flat_layout.h"
#include "zero/grad_reducer.h"
#include "zero/gradient_offload.h"

namespace zeroth::zero {

// InFlight is a queue of reductions in flight, oldest first, as many as may overlap with compute.
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

class GradExchange {
 public:
  // Keeps a reference to `pool`.
  GradExchange(const GradReducerOptions& options, BufferPool& pool);

  struct GradTransfer {
    comm::Group& shard_group;
    torch::Tensor whole;        // [numel], this rank's addend; overwritten. Any dtype
    Range range;                // elements of the sum that this rank needs: all, or its shard
    torch::Tensor target = {};  // [range.size()], result; may be that part of `whole`
    torch::Tensor host = {};  // [range.size()], result by options.gradient_offload; either or both
    torch::Tensor squared = {};   // fp64 scalar on the device; adds their squares; or undefined
    bool add = false;             // adds to the values of target or host
    bool return_to_pool = false;  // returns `whole` to the pool at the end
    std::string what = {};        // for messages
  };
  // Starts the sum of `whole` over the shard group. Transfers end in the order of their start, some
  // before this call returns; the caller must not use the target until then. Collective.
  void start(const GradTransfer& transfer);
  // Waits until all transfers have ended, also those of an interrupted step.
  void drain();

 private:
  struct GradBucket {
    comm::CollectiveHandle pending;
    torch::Tensor sent;                   // communication buffer, in the wire's dtype
    torch::Tensor received;               // values for target; undefined if this rank needs none
    torch::Tensor target, host, squared;  // slices of the transfer's
    bool add = false;
    device::StreamEvent offloaded;      // event after which received is free
    std::vector<torch::Tensor> pooled;  // tensors to return to the pool
  };

  GradBucket reduce_scatter_bucket(const GradTransfer& transfer, const Range& columns);
  GradBucket all_reduce_bucket(const GradTransfer& transfer, const Range& part);
  // Sets the bucket's targets for elements `part` of the transfer's range.
  static void set_targets(GradBucket& bucket, const GradTransfer& transfer, const Range& part);
  void push(std::vector<GradBucket> buckets);
  void retire(std::vector<GradBucket> buckets);
  // Returns the event after which the current stream can read the sum.
  device::StreamEvent start_offload(GradBucket& bucket);
  // Uses the sum on the device after event `summed`.
  void accumulate_sum(GradBucket& bucket, const device::StreamEvent& summed);
  void return_to_pool(std::vector<GradBucket> buckets);

  GradReducerOptions options_;
  BufferPool& pool_;
  InFlight<std::vector<GradBucket>> in_flight_;
  InFlight<std::vector<GradBucket>> offloading_;  // on their way to the CPU
};

}  // namespace zeroth::zero
