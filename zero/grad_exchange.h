// A gradient's way over the ranks that hold it: in pieces of at most a bucket, one or two gradients
// under way.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "comm/group.h"
#include "zero/buffer_pool.h"
#include "zero/flat_layout.h"
#include "zero/grad_reducer.h"
#include "zero/gradient_offload.h"
#include "zero/in_flight.h"

namespace zeroth::zero {

class GradExchange {
 public:
  // Keeps a reference to `pool`.
  GradExchange(const GradReducerOptions& options, BufferPool& pool);

  struct GradTransfer {
    comm::Group& shard_group;
    torch::Tensor whole;        // [numel], this rank's addend; written to. May lie in any dtype
    Range range;                // the elements of the sum that this rank wants: all, or its shard
    torch::Tensor target = {};  // [range.size()], where they go; may be that part of `whole`
    torch::Tensor host = {};    // [range.size()], where they go by options.landing; either, or both
    torch::Tensor squared = {};   // fp64 scalar on the device, grows by their squares; or undefined
    bool add = false;             // to what target or host holds
    bool return_to_pool = false;  // `whole` to the pool in the end
    std::string what = {};        // for messages
  };
  // Starts to sum `whole` over the holders. Transfers end in the order of their start, some before
  // this returns; the target is theirs until then. Collective.
  void start(const GradTransfer& transfer);
  // Waits until all have ended, those of a step that was interrupted too.
  void drain();

 private:
  struct GradBucket {
    comm::CollectiveHandle pending;
    torch::Tensor sent;      // crosses the group, in the wire's dtype
    torch::Tensor received;  // what target shall hold; undefined where this rank wants nothing
    torch::Tensor target, host, squared;  // as the transfer's
    bool add = false;
    device::StreamEvent offloaded;        // received is free behind it
    std::vector<torch::Tensor> borrowed;  // goes back to the pool
  };

  GradBucket scatter_bucket(const GradTransfer& transfer, const Range& columns);
  GradBucket all_reduce_bucket(const GradTransfer& transfer, const Range& part);
  // Where the transfer wants elements [begin, end) of its range.
  static void set_targets(GradBucket& bucket, const GradTransfer& transfer, const Range& part);
  void push(std::vector<GradBucket> buckets);
  void retire(std::vector<GradBucket> buckets);
  // Returns the point behind which the current stream finds the sum.
  device::StreamEvent start_offload(GradBucket& bucket);
  // Uses the sum on the device, behind `summed`.
  void accumulate_sum(GradBucket& bucket, const device::StreamEvent& summed);
  void return_to_pool(std::vector<GradBucket> buckets);

  GradReducerOptions options_;
  BufferPool& pool_;
  InFlight<std::vector<GradBucket>> in_flight_;
  InFlight<std::vector<GradBucket>> offloading_;  // on their way to the host
};

}  // namespace zeroth::zero
