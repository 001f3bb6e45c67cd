#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "model/custom_function.h"
#include "model/kernels/sequence_kernels.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Shifts are the distances between a token and the earlier ones that it reads.
class Shifts {
 public:
  Shifts(const Tensor& x, int64_t kernel, const Tensor& first_keys)
      : seq_(x.size(1)), count_(std::min(kernel, seq_)), first_keys_(first_keys) {}

  int64_t count() const { return count_; }
  // Returns the tokens that read another one at this shift, and those that are read: [batch, seq -
  // shift, channels] of x.
  Tensor readers(const Tensor& x, int64_t shift) const { return x.narrow(1, shift, seq_ - shift); }
  Tensor read(const Tensor& x, int64_t shift) const { return x.narrow(1, 0, seq_ - shift); }
  // Returns x, of readers, with zeros in place of those that do not see the other token.
  Tensor masked(const Tensor& x, int64_t shift) const {
    if (!first_keys_.defined() || shift == 0) return x;
    const Tensor others = at::arange(seq_ - shift, first_keys_.options());
    return x * first_keys_.narrow(1, shift, seq_ - shift).le(others).unsqueeze(2);
  }

 private:
  int64_t seq_, count_;
  Tensor first_keys_;
};

// Inputs are x and the weight.
class CausalConvFunction final : public CustomFunction {
 public:
  explicit CausalConvFunction(const CausalConv& options) : options_(options) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    context.save_for_backward(inputs);
    const Tensor sums = convolve(inputs[0], inputs[1]).to(inputs[0].scalar_type());
    return {options_.silu ? at::silu(sums) : sums};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor &x = saved[0], &weight = saved[1];
    const Shifts shifts(x, weight.size(2), options_.first_keys);
    Tensor dsums = grads[0].to(torch::kFloat);
    if (options_.silu) dsums = at::silu_backward(dsums, convolve(x, weight));
    const Tensor wide = x.to(torch::kFloat);
    const Tensor dx = at::zeros(x.sizes(), wide.options());
    const Tensor dweight = at::zeros(weight.sizes(), wide.options());
    for (int64_t shift = 0; shift < shifts.count(); ++shift) {
      const Tensor dy = shifts.masked(shifts.readers(dsums, shift), shift);
      shifts.read(dx, shift).addcmul_(dy, tap(weight, shift));
      tap(dweight, shift).copy_((dy * shifts.read(wide, shift)).sum(at::IntArrayRef({0, 1})));
    }
    return {dx.to(x.scalar_type()), dweight.to(weight.scalar_type())};
  }

 private:
  // Returns the factors [channels] of the tokens at a shift.
  static Tensor tap(const Tensor& weight, int64_t shift) {
    return weight.select(1, 0).select(1, weight.size(2) - 1 - shift);
  }

  Tensor convolve(const Tensor& x, const Tensor& weight) const {
    const Shifts shifts(x, weight.size(2), options_.first_keys);
    const Tensor wide = x.to(torch::kFloat), factors = weight.to(torch::kFloat);
    const Tensor sums = at::zeros(x.sizes(), wide.options());
    for (int64_t shift = 0; shift < shifts.count(); ++shift) {
      const Tensor others = shifts.masked(shifts.read(wide, shift), shift);
      shifts.readers(sums, shift).addcmul_(others, tap(factors, shift));
    }
    return sums;
  }

  CausalConv options_;
};

}  // namespace

Tensor causal_conv(const Tensor& x, const Tensor& weight, const CausalConv& options) {
  return apply_function(std::make_shared<CausalConvFunction>(options), {x, weight})[0];
}

}  // namespace zeroth::model
