#include "model/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "model/open_gradient.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// As in transformers: normalised in fp32, rounded to x's dtype, then times the weight.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, double eps) {
    const Tensor wide = x.to(torch::kFloat32);
    const Tensor length = at::linalg_vector_norm(wide, 2, at::IntArrayRef({-1}), true);
    const Tensor scale = length.square_().div_(x.size(-1)).add_(eps).rsqrt_();  // [..., 1]
    ctx->save_for_backward({x, weight, scale});
    return (wide * scale).to(x.scalar_type()).mul_(weight);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& weight = saved[1];
    const int64_t size = weight.size(0);
    const Tensor x = saved[0].to(torch::kFloat32).reshape({-1, size});
    const Tensor scale = saved[2].reshape({-1});
    const Tensor dy = dys[0].to(torch::kFloat32).reshape({-1, size});
    const Tensor wide = weight.to(torch::kFloat32);

    const Tensor product = dy * x;
    variable_list gradients(3);
    if (ctx->needs_input_grad(1)) {
      gradients[1] = deliver_gradient(weight, at::mv(product.t(), scale));
    }
    if (ctx->needs_input_grad(0)) {
      const Tensor along = at::mv(product, wide).mul_(scale.pow(3)).div_(size);
      Tensor dx = (dy * wide).mul_(scale.unsqueeze(1)).addcmul_(x, along.unsqueeze(1), -1);
      gradients[0] = dx.to(saved[0].scalar_type()).view(saved[0].sizes());
    }
    return gradients;
  }
};

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, double eps) {
    auto [y, mean, scale] = at::native_layer_norm(x, weight.sizes(), weight, bias, eps);
    ctx->save_for_backward({x, weight, bias, mean, scale});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& weight = saved[1];
    const Tensor& bias = saved[2];
    const std::array<bool, 3> wanted = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                        ctx->needs_input_grad(2)};
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        dys[0].contiguous(), saved[0], weight.sizes(), saved[3], saved[4], weight, bias, wanted);
    if (dweight.defined()) dweight = deliver_gradient(weight, dweight);
    if (dbias.defined()) dbias = deliver_gradient(bias, dbias);
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
  if (kind_ == NormKind::kRms) return RmsNorm::apply(x, weight_, eps_);
  return LayerNorm::apply(x, weight_, bias_, eps_);
}

}  // namespace zeroth::model
