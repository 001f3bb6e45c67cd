#include "model/kernels/fused.h"

#include <torch/library.h>

#include "model/kernels/fused_cpu.h"
#include "model/kernels/fused_formula.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Returns the operator `name` with the signature of its formula.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find(const char* name, const Signature&) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

TORCH_LIBRARY(zeroth, library) {
  const auto any_device = [](auto* formula) {
    return torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, formula);
  };
  library.def("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
              any_device(formula::rms_norm));
  library.def(
      "add_rms_norm(Tensor x, Tensor addend, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)",
      any_device(formula::add_rms_norm));
  library.def(
      "rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor scale, Tensor? residual, "
      "bool[2] wanted) -> (Tensor, Tensor)",
      any_device(formula::rms_norm_backward));
  library.def("rotate_pairs(Tensor x, Tensor cos, Tensor sin, float direction) -> Tensor",
              any_device(formula::rotate_pairs));
  library.def("swiglu(Tensor gate, Tensor up) -> Tensor", any_device(formula::swiglu));
  library.def("swiglu_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)",
              any_device(formula::swiglu_backward));
  library.def("add_rows_(Tensor(a!) table, Tensor rows, Tensor dy) -> ()",
              any_device(formula::add_rows_));
  library.def("log_sum_exp(Tensor logits) -> Tensor", any_device(formula::log_sum_exp));
  library.def("logit_gradient_(Tensor(a!) logits, Tensor lse, Tensor targets, Tensor scale) -> ()",
              any_device(formula::logit_gradient_));
}

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  register_on_cpu(library);
}

std::pair<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  static const auto op = find("zeroth::rms_norm", formula::rms_norm);
  auto [y, scale] = op.call(x, weight, eps);
  return {std::move(y), std::move(scale)};
}

AddRmsNormOutput add_rms_norm(const Tensor& x, const Tensor& addend, const Tensor& weight,
                              double eps) {
  static const auto op = find("zeroth::add_rms_norm", formula::add_rms_norm);
  auto [sum, y, scale] = op.call(x, addend, weight, eps);
  return {std::move(sum), std::move(y), std::move(scale)};
}

RmsNormGradients rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                   const Tensor& scale, RmsNormOutputMask output_mask,
                                   const std::optional<Tensor>& residual) {
  static const auto op = find("zeroth::rms_norm_backward", formula::rms_norm_backward);
  auto [dx, dweight] =
      op.call(dy, x, weight, scale, residual, {output_mask.dx, output_mask.dweight});
  return {output_mask.dx ? dx : Tensor(), output_mask.dweight ? dweight : Tensor()};
}

Tensor rotate_pairs(const Tensor& x, const Tensor& cos, const Tensor& sin, double direction) {
  static const auto op = find("zeroth::rotate_pairs", formula::rotate_pairs);
  return op.call(x, cos, sin, direction);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  static const auto op = find("zeroth::swiglu", formula::swiglu);
  return op.call(gate, up);
}

std::pair<Tensor, Tensor> swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  static const auto op = find("zeroth::swiglu_backward", formula::swiglu_backward);
  auto [dgate, dup] = op.call(dy, gate, up);
  return {std::move(dgate), std::move(dup)};
}

void add_rows_(Tensor table, const Tensor& rows, const Tensor& dy) {
  static const auto op = find("zeroth::add_rows_", formula::add_rows_);
  op.call(std::move(table), rows, dy);
}

Tensor log_sum_exp(const Tensor& logits) {
  static const auto op = find("zeroth::log_sum_exp", formula::log_sum_exp);
  return op.call(logits);
}

void logit_gradient_(Tensor logits, const Tensor& lse, const Tensor& targets, const Tensor& scale) {
  static const auto op = find("zeroth::logit_gradient_", formula::logit_gradient_);
  op.call(std::move(logits), lse, targets, scale);
}

}  // namespace zeroth::model
