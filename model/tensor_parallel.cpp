#include "model/tensor_parallel.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <utility>

#include "model/custom_function.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

Tensor with_rows(const Tensor& like, int64_t rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.front() = rows;
  return at::empty(sizes, like.options());
}

// SequenceCollective gathers or sums a sequence; each is the other's backward.
class SequenceCollective final : public CustomFunction {
 public:
  SequenceCollective(bool gathers, TensorParallelPtr tp, std::string what)
      : gathers_(gathers), tp_(std::move(tp)), what_(std::move(what)) {}

  TensorVector forward(const FunctionContext&, const TensorVector& inputs) override {
    return {run(gathers_, inputs[0], what_)};
  }

  TensorVector backward(const FunctionContext&, TensorVector grads) const override {
    return {run(!gathers_, grads[0], "gradients of " + what_)};
  }

 private:
  Tensor run(bool gathers, const Tensor& x, const std::string& what) const {
    if (gathers) return tp_->all_gather(x, what);
    // A reduce-scatter may overwrite its input, which other owners may keep.
    return tp_->reduce_scatter(x.clone(at::MemoryFormat::Contiguous), what);
  }

  bool gathers_;
  TensorParallelPtr tp_;
  std::string what_;
};

}  // namespace

AsyncCollectiveTensor TensorParallel::wait_unless_overlapped(AsyncCollectiveTensor begun) const {
  if (!options_.overlap) begun.wait();
  return begun;
}

AsyncCollectiveTensor TensorParallel::all_gather_async(const Tensor& local,
                                                       std::string_view what) const {
  const Tensor sent = local.contiguous();
  const Tensor all = with_rows(sent, size_ * sent.size(0));
  if (options_.group == nullptr) return {all.zero_()};
  return wait_unless_overlapped({all, sent, options_.group->all_gather(all, sent, what)});
}

AsyncCollectiveTensor TensorParallel::reduce_scatter_async(const Tensor& addend,
                                                           std::string_view what) const {
  const Tensor sent = addend.contiguous();
  const int64_t rows = sent.size(0) / size_;
  if (options_.group == nullptr) return {sent.narrow(0, rank_ * rows, rows).clone()};
  const Tensor sum = with_rows(sent, rows);
  return wait_unless_overlapped({sum, sent, options_.group->reduce_scatter(sum, sent, what)});
}

Tensor TensorParallel::all_gather(const Tensor& local, std::string_view what) const {
  return all_gather_async(local, what).wait();
}

Tensor TensorParallel::reduce_scatter(const Tensor& addend, std::string_view what) const {
  return reduce_scatter_async(addend, what).wait();
}

void TensorParallel::all_reduce(const Tensor& tensor, comm::ReduceOp op,
                                std::string_view what) const {
  if (options_.group != nullptr) options_.group->all_reduce(tensor, op, what).wait();
}

SequenceShard sequence_shard(int64_t tokens, const TensorParallel& tp) {
  const int64_t rows = (tokens + tp.size() - 1) / tp.size();
  const int64_t first = std::min(tokens, tp.rank() * rows);
  return {.first = first, .rows = rows, .tokens = std::clamp<int64_t>(tokens - first, 0, rows)};
}

Tensor pad_to_shards(const Tensor& x, const TensorParallel& tp) {
  const int64_t missing = sequence_shard(x.size(0), tp).rows * tp.size() - x.size(0);
  return missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, missing});
}

Tensor unflatten_tokens(const Tensor& y, const Tensor& tokens, const TensorParallelPtr& tp) {
  return tp ? y.narrow(0, 0, tokens.numel()).unflatten(0, tokens.sizes()) : y;
}

Tensor flatten_tokens(const Tensor& y, const TensorParallelPtr& tp) {
  return tp ? pad_to_shards(y.flatten(0, 1), *tp) : y;
}

Tensor gather_sequence(const Tensor& x, const TensorParallelPtr& tp, const std::string& what) {
  return apply_function(std::make_shared<SequenceCollective>(true, tp, what), {x})[0];
}

Tensor reduce_scatter_sequence(const Tensor& addend, const TensorParallelPtr& tp,
                               const std::string& what) {
  return apply_function(std::make_shared<SequenceCollective>(false, tp, what), {addend})[0];
}

}  // namespace zeroth::model
