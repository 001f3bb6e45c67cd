#include "model/kernels/fused.h"

#include <torch/library.h>

#include <type_traits>
#include <utility>

#include "model/kernels/fused_formula.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Calls the operator `name`, which has the signature of its formula.
template <auto* kFormula, typename... Args>
auto call(const char* name, Args&&... args) {
  using Signature = std::remove_pointer_t<decltype(kFormula)>;
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
  return op.call(std::forward<Args>(args)...);
}

}  // namespace

TORCH_LIBRARY(zeroth, library) {
  const auto any_device = [](auto* formula) {
    return torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, formula);
  };
  library.def(
      "rms_norm(Tensor x, Tensor weight, float eps, float offset, bool product_in_fp32) -> "
      "(Tensor, Tensor)",
      any_device(formula::rms_norm));
  library.def(
      "add_rms_norm(Tensor x, Tensor addend, Tensor weight, float eps, float offset, bool "
      "product_in_fp32) -> (Tensor, Tensor, Tensor)",
      any_device(formula::add_rms_norm));
  library.def(
      "rms_norm_backward(Tensor dy, Tensor[] saved, Tensor? residual, "
      "bool[2] wanted, float offset) -> (Tensor, Tensor)",
      any_device(formula::rms_norm_backward));
  library.def("apply_rope(Tensor x, Tensor cos, Tensor sin, float direction) -> Tensor",
              any_device(formula::apply_rope));
  library.def("gated_activation(Tensor gate, Tensor up, bool gelu_tanh) -> Tensor",
              any_device(formula::gated_activation));
  library.def(
      "gated_activation_backward(Tensor dy, Tensor gate, Tensor up, bool gelu_tanh) -> (Tensor, "
      "Tensor)",
      any_device(formula::gated_activation_backward));
  library.def("add_rows_(Tensor(a!) table, Tensor rows, Tensor dy) -> ()",
              any_device(formula::add_rows_));
  library.def("log_sum_exp(Tensor logits) -> Tensor", any_device(formula::log_sum_exp));
  library.def("logit_gradient_(Tensor(a!) logits, Tensor lse, Tensor targets, Tensor scale) -> ()",
              any_device(formula::logit_gradient_));
}

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  cpu::register_operators(library);
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& weight, double eps,
                                    double offset, bool product_in_fp32) {
  return call<formula::rms_norm>("zeroth::rms_norm", x, weight, eps, offset, product_in_fp32);
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& addend,
                                                const Tensor& weight, double eps, double offset,
                                                bool product_in_fp32) {
  return call<formula::add_rms_norm>("zeroth::add_rms_norm", x, addend, weight, eps, offset,
                                     product_in_fp32);
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& dy, at::TensorList saved,
                                             const std::optional<Tensor>& residual,
                                             std::array<bool, 2> output_mask, double offset) {
  const auto [dx, dweight] = call<formula::rms_norm_backward>("zeroth::rms_norm_backward", dy,
                                                              saved, residual, output_mask, offset);
  return {output_mask[0] ? dx : Tensor(), output_mask[1] ? dweight : Tensor()};
}

Tensor apply_rope(const Tensor& x, const Tensor& cos, const Tensor& sin, double direction) {
  return call<formula::apply_rope>("zeroth::apply_rope", x, cos, sin, direction);
}

Tensor gated_activation(const Tensor& gate, const Tensor& up, bool gelu_tanh) {
  return call<formula::gated_activation>("zeroth::gated_activation", gate, up, gelu_tanh);
}

std::tuple<Tensor, Tensor> gated_activation_backward(const Tensor& dy, const Tensor& gate,
                                                     const Tensor& up, bool gelu_tanh) {
  return call<formula::gated_activation_backward>("zeroth::gated_activation_backward", dy, gate, up,
                                                  gelu_tanh);
}

void add_rows_(Tensor table, const Tensor& rows, const Tensor& dy) {
  call<formula::add_rows_>("zeroth::add_rows_", std::move(table), rows, dy);
}

Tensor log_sum_exp(const Tensor& logits) {
  return call<formula::log_sum_exp>("zeroth::log_sum_exp", logits);
}

void logit_gradient_(Tensor logits, const Tensor& lse, const Tensor& targets, const Tensor& scale) {
  call<formula::logit_gradient_>("zeroth::logit_gradient_", std::move(logits), lse, targets, scale);
}

}  // namespace zeroth::model
