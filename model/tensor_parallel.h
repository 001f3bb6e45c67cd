// The ranks that split every layer of a chain, as in Megatron-LM's tensor and sequence parallelism
// (arXiv 1909.08053, 2205.05198): products are split by outputs or by inputs, and between them each
// rank has a shard of the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "comm/groups/group.h"
#include "device/tensor.h"

namespace zeroth::model {

// An AsyncCollectiveTensor is a result whose collective may still be in flight.
struct AsyncCollectiveTensor {
  torch::Tensor result = {};
  torch::Tensor sent = {};
  comm::CollectiveHandle pending = {};

  // Returns the result, ordered on the current stream; undefined if no collective was started.
  torch::Tensor wait() {
    pending.wait();
    sent = torch::Tensor();
    return result;
  }
};

class TensorParallel {
 public:
  struct CommOptions {
    // Null: a fake group with this rank's shapes and no other rank, for estimates of memory.
    // Gathered tensors are then zeros, and sums are this rank's partial sums.
    comm::Group* group = nullptr;
    bool overlap = false;  // collectives of a backward run concurrently with its products
  };
  TensorParallel(int rank, int size, const CommOptions& options)
      : rank_(rank), size_(size), options_(options) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Returns [size * n, ...] from [n, ...] of each rank, in rank order. `what` names the data in
  // messages. Collective.
  torch::Tensor all_gather(const torch::Tensor& local, std::string_view what) const;
  // Returns this rank's [n, ...] of the sum of [size * n, ...] over the ranks. `addend` may be
  // overwritten. Collective.
  torch::Tensor reduce_scatter(const torch::Tensor& addend, std::string_view what) const;
  // Start all_gather() and reduce_scatter(): the collective runs concurrently with what is done
  // before wait(), if collectives overlap. Collective.
  AsyncCollectiveTensor all_gather_async(const torch::Tensor& local, std::string_view what) const;
  AsyncCollectiveTensor reduce_scatter_async(const torch::Tensor& addend,
                                             std::string_view what) const;
  // Reduces `tensor` in place over the ranks. Collective.
  void all_reduce(const torch::Tensor& tensor, comm::ReduceOp op, std::string_view what) const;

 private:
  AsyncCollectiveTensor wait_unless_overlapped(AsyncCollectiveTensor begun) const;

  int rank_;
  int size_;
  CommOptions options_;
};

// A ParallelStyle is the dimension of a weight that the tensor-parallel ranks split. Split by
// outputs ("column" in Megatron-LM), every rank needs all tokens and has a part of each one's
// result. Split by inputs ("row"), it has a part of each token and a partial sum of the result.
enum class ParallelStyle { kNone, kColwise, kRowwise };

// Null means that each layer is on one rank.
using TensorParallelPtr = std::shared_ptr<const TensorParallel>;

inline int tp_size(const TensorParallelPtr& tp) {
  return tp ? tp->size() : 1;
}

// A `SequenceShard` is one rank's range of the tokens of a micro-batch, flattened row by row and
// split into as many shards as there are ranks. The last ones are padded with rows that are finite
// and have no effect.
struct SequenceShard {
  int64_t first = 0;
  int64_t rows = 0;    // equal on every rank
  int64_t tokens = 0;  // tokens among these rows, from the first on
};
SequenceShard sequence_shard(int64_t tokens, const TensorParallel& tp);

// Returns x [tokens, n] followed by the rows of zeros that fill the shards of all ranks.
torch::Tensor pad_to_shards(const torch::Tensor& x, const TensorParallel& tp);

// Returns y [batch, seq, n] of a micro-batch's tokens [batch, seq], in which form y already is
// without `tp`; otherwise it is [tokens, n], with the rows of pad_to_shards() behind them.
torch::Tensor unflatten_tokens(const torch::Tensor& y, const torch::Tensor& tokens,
                               const TensorParallelPtr& tp);
// Returns y [batch, seq, n] in the form that unflatten_tokens() takes.
torch::Tensor flatten_tokens(const torch::Tensor& y, const TensorParallelPtr& tp);

// Returns the shards of all ranks, [rows, n] -> [size * rows, n]; the backward sums the ranks'
// gradients and keeps this rank's shard. Collective.
torch::Tensor gather_sequence(const torch::Tensor& x, const TensorParallelPtr& tp,
                              const std::string& what);

// Returns this rank's shard [rows, n] of the sum of each rank's partial sums [size * rows, n]; the
// backward gathers the shards of the gradient. Collective.
torch::Tensor reduce_scatter_sequence(const torch::Tensor& addend, const TensorParallelPtr& tp,
                                      const std::string& what);

}  // namespace zeroth::model
