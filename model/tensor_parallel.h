// The ranks that share every layer of a chain, as Megatron-LM's tensor and sequence parallelism
// (arXiv 1909.08053, 2205.05198): products are cut by outputs or by inputs, and between them each
// rank has a run of the tokens.
#pragma once

#include <torch/custom_class.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/group.h"

namespace torch::autograd {
struct AutogradContext;
}

namespace zeroth::model {

// A result that may still be on its way.
class AsyncCollectiveTensor {
 public:
  AsyncCollectiveTensor() = default;
  AsyncCollectiveTensor(torch::Tensor result, torch::Tensor sent, comm::CollectiveHandle pending)
      : result_(std::move(result)), sent_(std::move(sent)), pending_(std::move(pending)) {}

  // It, ordered on the current stream; undefined where nothing was begun.
  torch::Tensor wait() {
    pending_.wait();
    sent_ = torch::Tensor();
    return result_;
  }

 private:
  torch::Tensor result_, sent_;
  comm::CollectiveHandle pending_;
};

class TensorParallel : public torch::CustomClassHolder {
 public:
  struct CommOptions {
    // Null: a rehearsal with this rank's shapes and nobody else, for those who count memory.
    // Gathered are zeros then, and sums are this rank's addends.
    comm::Group* group = nullptr;
    bool overlap = false;  // collectives of a backward run beside its products
  };
  TensorParallel(int rank, int size, const CommOptions& options)
      : rank_(rank), size_(size), options_(options) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  // [n, ...] of each rank -> [size * n, ...] in their order. `what` names the data in messages.
  torch::Tensor all_gather(const torch::Tensor& local, std::string_view what) const;
  // [size * n, ...] -> this rank's [n, ...] of the sum over the ranks. `addend` may be overwritten.
  torch::Tensor reduce_scatter(const torch::Tensor& addend, std::string_view what) const;
  // The same, begun: it arrives beside what is done before wait() where collectives overlap.
  AsyncCollectiveTensor all_gather_async(const torch::Tensor& local, std::string_view what) const;
  AsyncCollectiveTensor reduce_scatter_async(const torch::Tensor& addend,
                                             std::string_view what) const;
  // In place, over the ranks.
  void all_reduce(const torch::Tensor& tensor, comm::ReduceOp op, std::string_view what) const;

 private:
  AsyncCollectiveTensor wait_unless_overlapped(AsyncCollectiveTensor begun) const;

  int rank_;
  int size_;
  CommOptions options_;
};

// Null: each layer is on one rank.
using TensorParallelPtr = c10::intrusive_ptr<TensorParallel>;

inline int tp_size(const TensorParallelPtr& tp) {
  return tp ? tp->size() : 1;
}

// Those that a Function has kept for its backward.
void save_tensor_parallel(torch::autograd::AutogradContext* ctx, const TensorParallelPtr& tp);
TensorParallelPtr saved_tensor_parallel(torch::autograd::AutogradContext* ctx);

// The tokens of a micro-batch in one row after the other, cut into as many runs as there are ranks.
// The last ones are filled up with rows that are finite and count for nothing.
struct SequenceShard {
  int64_t first = 0;
  int64_t rows = 0;    // of every rank
  int64_t tokens = 0;  // of these rows, from the first on
};
SequenceShard sequence_shard(int64_t tokens, const TensorParallel& tp);

// x [tokens, n] with as many rows of zeros behind it as fill the runs of all ranks.
torch::Tensor pad_to_shards(const torch::Tensor& x, const TensorParallel& tp);

// Runs of all ranks [rows, n] -> [size * rows, n]; its backward sums the ranks' gradients and keeps
// this rank's run.
torch::Tensor gather_sequence(const torch::Tensor& x, const TensorParallelPtr& tp,
                              const std::string& what);

// The other way: each rank's addend [size * rows, n] -> this rank's run of their sum [rows, n]; its
// backward gathers the runs of the gradient.
torch::Tensor reduce_scatter_sequence(const torch::Tensor& addend, const TensorParallelPtr& tp,
                                      const std::string& what);

}  // namespace zeroth::model
