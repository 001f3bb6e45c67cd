#include "model/tensor_ranks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor with_rows(const Tensor& like, int64_t rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.front() = rows;
  return at::empty(sizes, like.options());
}

// Gathering and summing are each other's backward.
template <bool kGathers>
struct CrossRanks : torch::autograd::Function<CrossRanks<kGathers>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const TensorRanksPtr& ranks,
                        const std::string& what) {
    save_ranks(ctx, ranks);
    ctx->saved_data["what"] = what;
    return kGathers ? ranks->gather(x, what) : ranks->scatter_sum(own(x), what);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const TensorRanksPtr ranks = saved_ranks(ctx);
    const std::string what = "gradients of " + ctx->saved_data["what"].toStringRef();
    const Tensor dx =
        kGathers ? ranks->scatter_sum(own(dys[0]), what) : ranks->gather(dys[0], what);
    return {dx, Tensor(), Tensor()};
  }

 private:
  // A sum may overwrite its addend, which others may keep.
  static Tensor own(const Tensor& addend) { return addend.clone(at::MemoryFormat::Contiguous); }
};

}  // namespace

TensorRanksPtr saved_ranks(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<TensorRanks>(ctx->saved_data["ranks"].toCapsule());
}

void save_ranks(AutogradContext* ctx, const TensorRanksPtr& ranks) {
  ctx->saved_data["ranks"] = c10::IValue::make_capsule(ranks);
}

Arriving TensorRanks::arriving(Arriving begun) const {
  if (!options_.overlap) begun.wait();
  return begun;
}

Arriving TensorRanks::begin_gather(const Tensor& own, std::string_view what) const {
  const Tensor sent = own.contiguous();
  if (options_.group == nullptr)
    return {with_rows(sent, size_ * sent.size(0)).zero_(), Tensor(), comm::Pending()};
  const Tensor all = with_rows(sent, size_ * sent.size(0));
  return arriving({all, sent, options_.group->all_gather(all, sent, what)});
}

Arriving TensorRanks::begin_scatter_sum(const Tensor& addend, std::string_view what) const {
  const Tensor sent = addend.contiguous();
  const int64_t rows = sent.size(0) / size_;
  if (options_.group == nullptr)
    return {sent.narrow(0, rank_ * rows, rows).clone(), Tensor(), comm::Pending()};
  const Tensor sum = with_rows(sent, rows);
  return arriving({sum, sent, options_.group->reduce_scatter(sum, sent, what)});
}

Tensor TensorRanks::gather(const Tensor& own, std::string_view what) const {
  return begin_gather(own, what).wait();
}

Tensor TensorRanks::scatter_sum(const Tensor& addend, std::string_view what) const {
  return begin_scatter_sum(addend, what).wait();
}

void TensorRanks::all_reduce(const Tensor& tensor, comm::Reduce op, std::string_view what) const {
  if (options_.group != nullptr) options_.group->all_reduce(tensor, op, what).wait();
}

TokenRun token_run(int64_t tokens, const TensorRanks& ranks) {
  const int64_t rows = (tokens + ranks.size() - 1) / ranks.size();
  const int64_t first = ranks.rank() * rows;
  return {.first = first, .rows = rows, .tokens = std::clamp<int64_t>(tokens - first, 0, rows)};
}

Tensor filled_up(const Tensor& x, const TensorRanks& ranks) {
  const int64_t missing = token_run(x.size(0), ranks).rows * ranks.size() - x.size(0);
  return missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, missing});
}

Tensor gather_runs(const Tensor& x, const TensorRanksPtr& ranks, const std::string& what) {
  return CrossRanks<true>::apply(x, ranks, what);
}

Tensor sum_runs(const Tensor& addend, const TensorRanksPtr& ranks, const std::string& what) {
  return CrossRanks<false>::apply(addend, ranks, what);
}

}  // namespace zeroth::model
