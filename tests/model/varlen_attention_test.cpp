#include <doctest/doctest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <optional>
#include <tuple>
#include <vector>

#include "model/blocks/attention.h"
#include "model/kernels/attention_kernels.h"

namespace zeroth::model::varlen_attention_test {
namespace {

using torch::Tensor;
using MaybeTensor = std::optional<Tensor>;
using MaybeSize = std::optional<int64_t>;

// The kernel of flash attention as its documentation describes it, with inputs [tokens, heads,
// size], so that its caller can be tested without a GPU.
Tensor flash_formula(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets,
                     double scale, MaybeSize window_left) {
  const int64_t group = q.size(1) / k.size(1);
  std::vector<Tensor> y;
  for (int64_t i = 0; i + 1 < offsets.numel(); ++i) {
    const int64_t begin = offsets[i].item<int64_t>(), size = offsets[i + 1].item<int64_t>() - begin;
    const auto heads = [&](const Tensor& x) { return x.narrow(0, begin, size).transpose(0, 1); };
    const Tensor keys = heads(k).repeat_interleave(group, 0);
    Tensor seen = torch::ones({size, size}, torch::kBool).tril();
    if (window_left && *window_left >= 0) seen = seen.triu(-*window_left);
    const Tensor scores =
        (heads(q).matmul(keys.transpose(1, 2)) * scale).masked_fill(seen.logical_not(), -INFINITY);
    y.push_back(scores.softmax(-1).matmul(heads(v).repeat_interleave(group, 0)).transpose(0, 1));
  }
  return torch::cat(y);
}

void check_call(const MaybeTensor& offsets_q, const MaybeTensor& offsets_k, int64_t max_q,
                int64_t max_k, double dropout_p, bool is_causal) {
  CHECK(torch::equal(*offsets_q, *offsets_k));
  CHECK((offsets_q->scalar_type() == torch::kInt32));
  CHECK(max_q == offsets_q->diff().max().item<int64_t>());
  CHECK(max_k == max_q);
  CHECK(dropout_p == 0);
  CHECK(is_causal);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash_forward(
    const Tensor& q, const Tensor& k, const Tensor& v, const MaybeTensor& offsets_q,
    const MaybeTensor& offsets_k, int64_t max_q, int64_t max_k, double dropout_p, bool is_causal,
    bool return_debug_mask, std::optional<double> scale, MaybeSize window_left,
    MaybeSize window_right, const MaybeTensor&, const MaybeTensor&) {
  check_call(offsets_q, offsets_k, max_q, max_k, dropout_p, is_causal);
  CHECK_FALSE(return_debug_mask);
  CHECK(window_right.value_or(-1) <= 0);
  const Tensor none = torch::zeros({});
  return {flash_formula(q, k, v, *offsets_q, *scale, window_left), none, none, none, none};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
    const Tensor&, const Tensor& offsets_q, const Tensor& offsets_k, int64_t max_q, int64_t max_k,
    double dropout_p, bool is_causal, const Tensor&, const Tensor&, std::optional<double> scale,
    MaybeSize window_left, MaybeSize) {
  check_call(offsets_q, offsets_k, max_q, max_k, dropout_p, is_causal);
  // Operators called by a kernel record no graph otherwise.
  const c10::impl::ForceDispatchKeyGuard outermost(c10::default_included_set,
                                                   c10::default_excluded_set);
  const torch::AutoGradMode with_gradients(true);
  std::vector<Tensor> x;
  for (const Tensor& input : {q, k, v}) x.push_back(input.detach().requires_grad_());
  flash_formula(x[0], x[1], x[2], offsets_q, *scale, window_left).backward(grad);
  return {x[0].grad(), x[1].grad(), x[2].grad()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_flash_attention_forward", flash_forward);
  library.impl("_flash_attention_backward", flash_backward);
}

TEST_CASE("samples begin where a token is its own first key, and the longest is known") {
  const Tensor first_keys = torch::tensor({{0, 0, 2, 2, 4}, {0, 0, 0, 0, 0}}, torch::kLong);
  const CuSeqlens samples = cu_seqlens(first_keys, torch::kCPU);
  CHECK(torch::equal(samples.offsets, torch::tensor({0, 2, 4, 5, 10}, torch::kInt32)));
  CHECK(samples.max_length == 5);
  SampleOffsets cache;
  const void* const offsets = cache.get(first_keys, torch::kCPU).offsets.data_ptr();
  CHECK(cache.get(first_keys, torch::kCPU).offsets.data_ptr() == offsets);
  CHECK(cache.get(torch::zeros({1, 3}, torch::kLong), torch::kCPU).max_length == 3);
}

TEST_CASE("flash attention over offsets has the values and gradients of attention by a mask") {
  torch::manual_seed(4);
  Tensor first_keys = torch::zeros({2, 40}, torch::kLong);
  first_keys[0].narrow(0, 1, 39).fill_(1);
  first_keys[0].narrow(0, 24, 16).fill_(24);
  for (const int64_t window : {0, 1, 7}) {
    std::vector<Tensor> x, by_mask;
    for (const int64_t heads : {6, 2, 2}) {
      x.push_back(torch::randn({2, 40, heads, 8}).requires_grad_());
      by_mask.push_back(x.back().detach().clone().requires_grad_());
    }
    const Tensor y = varlen_attention(x[0], x[1], x[2], cu_seqlens(first_keys, torch::kCPU),
                                      /*scale=*/0.3, window);
    WindowMask mask(window);
    const Tensor expected = formula_attention(by_mask[0], by_mask[1], by_mask[2],
                                              mask.get(40, y, first_keys), {.scale = 0.3});
    CHECK(torch::allclose(y, expected, 1e-5, 1e-6));
    const Tensor grad = torch::randn_like(y);
    y.backward(grad);
    expected.backward(grad);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(torch::allclose(x[i].grad(), by_mask[i].grad(), 1e-4, 1e-5));
    }
  }
}

}  // namespace zeroth::model::varlen_attention_test
