#include "model/kernels/fused_formula.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <vector>

namespace zeroth::model {

using torch::Tensor;

std::optional<RowLayout> row_layout(const Tensor& x) {
  if (x.numel() == 0) return std::nullopt;
  if (x.is_contiguous()) return RowLayout{1, x.numel(), x.numel()};
  if (x.stride(-1) != 1) return std::nullopt;
  for (int64_t dim = 0; dim + 2 < x.dim(); ++dim) {
    if (x.stride(dim) != x.stride(dim + 1) * x.size(dim + 1)) return std::nullopt;
  }
  return RowLayout{x.numel() / x.size(-1), x.size(-1), x.stride(-2)};
}

std::pair<Tensor, Tensor> empty_like_pair(const Tensor& gate, const Tensor& up) {
  const int64_t width = gate.size(-1);
  const bool beside = !gate.is_contiguous() && gate.stride(-2) == 2 * width &&
                      gate.is_alias_of(up) && up.storage_offset() == gate.storage_offset() + width;
  if (!beside)
    return {at::empty_strided(gate.sizes(), gate.strides(), gate.options()),
            at::empty_strided(gate.sizes(), gate.strides(), gate.options())};
  std::vector<int64_t> sizes = gate.sizes().vec();
  sizes.back() = 2 * width;
  const Tensor both = at::empty(sizes, gate.options());
  return {both.narrow(-1, 0, width), both.narrow(-1, width, width)};
}

namespace formula {

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& weight, double eps,
                                    double offset, bool product_in_fp32) {
  const Tensor wide = x.to(torch::kFloat);
  const Tensor length = at::linalg_vector_norm(wide, 2, at::IntArrayRef({-1}), true);
  const Tensor scale = length.square_().div_(x.size(-1)).add_(eps).rsqrt_();  // [..., 1]
  const Tensor unrounded = wide * scale;
  const Tensor normalized = product_in_fp32 ? unrounded : unrounded.to(x.scalar_type());
  if (offset == 0 && !product_in_fp32) return {normalized.mul(weight), scale.flatten()};
  return {(normalized * weight.to(torch::kFloat).add(offset)).to(x.scalar_type()), scale.flatten()};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& addend,
                                                const Tensor& weight, double eps, double offset,
                                                bool product_in_fp32) {
  const Tensor sum = at::add(x, addend);
  const auto [y, scale] = rms_norm(sum, weight, eps, offset, product_in_fp32);
  return {sum, y, scale};
}

// Computes dx = scale * (w dy - x scale^2 mean(w dy x)) + residual; dw = sum over rows of dy x
// scale.
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& dy, at::TensorList saved,
                                             const std::optional<Tensor>& residual,
                                             std::array<bool, 2> output_mask, double offset) {
  const Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
  const int64_t size = weight.size(0);
  const Tensor rows = x.to(torch::kFloat).reshape({-1, size});
  const Tensor wide_dy = dy.to(torch::kFloat).reshape({-1, size});
  const Tensor product = wide_dy * rows;
  Tensor dx = at::empty({0}, x.options());
  Tensor dweight = at::empty({0}, scale.options());
  if (output_mask[1]) dweight = at::mv(product.t(), scale);
  if (output_mask[0]) {
    const Tensor wide = weight.to(torch::kFloat).add(offset);
    const Tensor along = at::mv(product, wide).mul_(scale.pow(3)).div_(size);
    dx = (wide_dy * wide).mul_(scale.unsqueeze(1)).addcmul_(rows, along.unsqueeze(1), -1);
    dx = dx.to(x.scalar_type()).view(x.sizes());
    if (residual) dx.add_(*residual);
  }
  return {dx, dweight};
}

Tensor apply_rope(const Tensor& x, const Tensor& cos, const Tensor& sin, double direction) {
  const int64_t half = x.size(-1) / 2;
  const Tensor first = x.narrow(-1, 0, half);
  const Tensor second = x.narrow(-1, half, half);
  Tensor out = at::empty(x.sizes(), x.options());
  Tensor out_first = out.narrow(-1, 0, half);
  Tensor out_second = out.narrow(-1, half, half);
  at::mul_out(out_first, first, cos).addcmul_(second, sin, -direction);
  at::mul_out(out_second, second, cos).addcmul_(first, sin, direction);
  return out;
}

Tensor gated_activation(const Tensor& gate, const Tensor& up, bool gelu_tanh) {
  return (gelu_tanh ? at::gelu(gate, "tanh") : at::silu(gate)).mul_(up);
}

std::tuple<Tensor, Tensor> gated_activation_backward(const Tensor& dy, const Tensor& gate,
                                                     const Tensor& up, bool gelu_tanh) {
  const Tensor dactive = dy * up;
  return {gelu_tanh ? at::gelu_backward(dactive, gate, "tanh") : at::silu_backward(dactive, gate),
          gated_activation(gate, dy, gelu_tanh)};
}

void add_rows_(Tensor table, const Tensor& rows, const Tensor& dy) {
  if (table.element_size() >= 4) {
    table.index_add_(0, rows, dy.to(table.scalar_type()));
  } else {
    table.copy_(table.to(torch::kFloat).index_add_(0, rows, dy.to(torch::kFloat)));
  }
}

Tensor log_sum_exp(const Tensor& logits) {
  return at::logsumexp(logits.to(torch::kFloat), {1});
}

void logit_gradient_(Tensor logits, const Tensor& lse, const Tensor& targets, const Tensor& scale) {
  const Tensor wide = at::sub(logits, lse.unsqueeze(1)).exp_();  // fp32
  const Tensor inside = targets.ge(0).logical_and_(targets.lt(logits.size(1)));
  const Tensor at_target = targets.clamp(0, logits.size(1) - 1).unsqueeze(1);
  const Tensor ones = inside.to(wide.scalar_type()).unsqueeze(1);
  at::mul_out(logits, wide.scatter_add_(1, at_target, ones.neg()), scale);
}

}  // namespace formula

}  // namespace zeroth::model
