#include "model/blocks/lora.h"

#include "model/blocks/main_grad.h"
#include "model/kernels/matrix_product.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

Tensor stacked_a(const std::vector<LoraFactors>& factors) {
  if (factors.size() == 1) return factors.front().a;
  std::vector<Tensor> parts;
  for (const LoraFactors& one : factors) parts.push_back(one.a);
  return at::cat(parts, 0);
}

Tensor side_by_side(const TensorVector& parts) {
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

// Returns the columns of each adapter of a tensor that side_by_side() has made.
TensorVector columns(const Tensor& all, const std::vector<LoraFactors>& factors) {
  std::vector<int64_t> widths;
  for (const LoraFactors& one : factors) widths.push_back(one.a.size(0));
  return all.split_with_sizes(widths, 1);
}

}  // namespace

Tensor LoraProducts::dropped(const Tensor& x, size_t adapter) const {
  return dropped_rows(x, form_.adapters[adapter].dropout, form_.samples, form_.first_token,
                      form_.first_input);
}

TensorVector LoraProducts::forward(const Tensor& x, const std::vector<LoraFactors>& factors,
                                   const TensorVector& outputs) const {
  Tensor all;
  if (drops()) {
    TensorVector parts;
    for (size_t i = 0; i < size(); ++i)
      parts.push_back(matrix_product(dropped(x, i), factors[i].a.t()));
    all = side_by_side(parts);
  } else {
    all = matrix_product(x, stacked_a(factors).t());
  }
  constexpr const char* kWhat = "low-rank products";
  if (form_.style == ParallelStyle::kColwise) all = form_.tp->all_gather(all, kWhat);
  if (form_.style == ParallelStyle::kRowwise) all = form_.tp->reduce_scatter(all, kWhat);
  TensorVector low_rank = columns(all, factors);
  for (size_t i = 0; i < size(); ++i) {
    const auto& [product, scale, site] = form_.adapters[i];
    low_rank[i] = low_rank[i].mul(scale);
    write_matrix_product(outputs[product], low_rank[i], factors[i].b.t(), /*add=*/true);
  }
  return low_rank;
}

TensorVector LoraProducts::backward(const Tensor& x, const std::vector<LoraFactors>& factors,
                                    const TensorVector& low_rank, const TensorVector& dy,
                                    const Tensor& dx) const {
  TensorVector gradients(2 * size()), parts;
  for (size_t i = 0; i < size(); ++i) {
    const auto& [product, scale, site] = form_.adapters[i];
    if (!dy[product].defined()) {
      parts.push_back(at::zeros_like(low_rank[i]));
      continue;
    }
    gradients[2 * i + 1] = accumulate_wgrad(factors[i].b, dy[product], low_rank[i]);
    parts.push_back(matrix_product(dy[product], factors[i].b).mul_(scale));
  }
  Tensor dlow_rank = side_by_side(parts);
  constexpr const char* kWhat = "gradients of low-rank products";
  if (form_.style == ParallelStyle::kColwise)
    dlow_rank = form_.tp->reduce_scatter(dlow_rank, kWhat);
  if (form_.style == ParallelStyle::kRowwise) dlow_rank = form_.tp->all_gather(dlow_rank, kWhat);
  const TensorVector of_a = gradients_of_a(x, factors, dlow_rank);
  for (size_t i = 0; i < size(); ++i) gradients[2 * i] = of_a[i];
  if (!dx.defined()) return gradients;
  if (!drops()) {
    write_matrix_product(dx, dlow_rank, stacked_a(factors), /*add=*/true);
    return gradients;
  }
  parts = columns(dlow_rank, factors);
  for (size_t i = 0; i < size(); ++i) dx.add_(dropped(matrix_product(parts[i], factors[i].a), i));
  return gradients;
}

TensorVector LoraProducts::gradients_of_a(const Tensor& x, const std::vector<LoraFactors>& factors,
                                          const Tensor& dlow_rank) const {
  TensorVector gradients;
  if (drops() || size() == 1) {
    const TensorVector parts = columns(dlow_rank, factors);
    for (size_t i = 0; i < size(); ++i)
      gradients.push_back(accumulate_wgrad(factors[i].a, parts[i], drops() ? dropped(x, i) : x));
    return gradients;
  }
  const Tensor wide = at::empty({0}, x.options().dtype(torch::kFloat));
  const Tensor sums = at::empty({dlow_rank.size(1), x.size(1)},
                                accumulates_in_fp32(wide, x) ? wide.options() : x.options());
  write_matrix_product(sums, dlow_rank.t(), x);
  int64_t row = 0;
  for (const LoraFactors& one : factors) {
    gradients.push_back(accumulate_grad(one.a, sums.narrow(0, row, one.a.size(0))));
    row += one.a.size(0);
  }
  return gradients;
}

}  // namespace zeroth::model
