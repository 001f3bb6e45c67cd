#include "model/blocks/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "model/blocks/main_grad.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// RmsNorm returns x, or x + addend, and its norm.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x,
                               const std::optional<Tensor>& addend, const Tensor& weight,
                               double eps) {
    ctx->set_materialize_grads(false);
    AddRmsNormOutput outputs{x, Tensor(), Tensor()};
    if (addend) {
      outputs = add_rms_norm(x, *addend, weight, eps);
    } else {
      std::tie(outputs.y, outputs.scale) = rms_norm(x, weight, eps);
    }
    ctx->saved_data["adds"] = addend.has_value();
    ctx->save_for_backward({outputs.sum, weight, outputs.scale});
    return {outputs.sum, outputs.y};
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const bool adds = ctx->saved_data["adds"].toBool();
    const size_t weight_index = adds ? 2 : 1;  // among the inputs that are tensors
    Tensor dsum = dys[0], dweight;
    if (dys[1].defined()) {
      const RmsNormOutputMask output_mask{
          .dx = ctx->needs_input_grad(0) || (adds && ctx->needs_input_grad(1)),
          .dweight = ctx->needs_input_grad(weight_index)};
      const std::optional<Tensor> residual = dsum.defined() ? std::optional(dsum) : std::nullopt;
      const RmsNormGradients gradients =
          rms_norm_backward(dys[1], saved[0], saved[1], saved[2], output_mask, residual);
      dsum = gradients.dx;
      if (gradients.dweight.defined()) dweight = accumulate_grad(saved[1], gradients.dweight);
    }
    return {dsum, adds ? dsum : Tensor(), dweight, Tensor()};
  }
};

// Widens 16-bit tensors on a CPU. There torch's LayerNorm sums the gradients of weight and bias
// over the rows in the dtype of x, where a sum in 16 bits soon stops growing, and keeps the rows'
// means in the dtype of the weight.
Tensor wide_on_cpu(const Tensor& tensor) {
  const bool is_16_bit = at::isReducedFloatingType(tensor.scalar_type());
  return tensor.is_cpu() && is_16_bit ? tensor.to(torch::kFloat) : tensor;
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, double eps) {
    auto [y, mean, scale] =
        at::native_layer_norm(x, weight.sizes(), wide_on_cpu(weight), wide_on_cpu(bias), eps);
    ctx->save_for_backward({x, weight, bias, mean, scale});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& weight = saved[1];
    const Tensor& bias = saved[2];
    const std::array<bool, 3> output_mask = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                             ctx->needs_input_grad(2)};
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        wide_on_cpu(dys[0]).contiguous(), wide_on_cpu(saved[0]), weight.sizes(), saved[3], saved[4],
        wide_on_cpu(weight), wide_on_cpu(bias), output_mask);
    if (dx.defined()) dx = dx.to(saved[0].scalar_type());
    if (dweight.defined()) dweight = accumulate_grad(weight, dweight);
    if (dbias.defined()) dbias = accumulate_grad(bias, dbias);
    return {dx, dweight, dbias, Tensor()};
  }
};

Tensor meta_parameter(int64_t size) {
  return torch::empty({size}, torch::dtype(torch::kFloat32).device(torch::kMeta));
}

}  // namespace

Norm::Norm(NormKind kind, int64_t size, double eps) : kind_(kind), eps_(eps) {
  weight_ = register_parameter("weight", meta_parameter(size));
  if (kind == NormKind::kLayer) bias_ = register_parameter("bias", meta_parameter(size));
}

Tensor Norm::forward(const Tensor& x) const {
  if (kind_ == NormKind::kRms) return forward_residual(x).norm;
  return LayerNorm::apply(x, weight_, bias_, eps_);
}

Norm::Residual Norm::forward_residual(const Tensor& x, const std::optional<Tensor>& addend) const {
  if (kind_ == NormKind::kRms) {
    const variable_list both = RmsNorm::apply(x, addend, weight_, eps_);
    return {both[0], both[1]};
  }
  const Tensor stream = addend ? x + *addend : x;
  return {stream, forward(stream)};
}

}  // namespace zeroth::model
