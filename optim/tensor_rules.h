// The formulas of Adam, Adagrad, Lion and SGD by LibTorch's operators, on any device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "configs/config.h"
#include "optim/update_rule.h"

namespace zeroth::optim {

// A TensorRule widens the gradient first and makes the copy in a pass afterwards; between them the
// formula is one fused kernel, or a few operators.
class TensorRule : public UpdateRule {
 public:
  // Supports every optimizer except Lamb (optim/lamb.h).
  explicit TensorRule(const configs::OptimizerConfig& config);

  std::span<const std::string_view> state_names() const override { return formula_.state_names; }
  double initial_state() const override;
  void apply(const Chunk& chunk, const UpdateStep& step) const override;

  struct TensorFormula {
    std::span<const std::string_view> state_names;
    // Updates a checked chunk; the gradient is fp32 and may be overwritten, the copy is ignored.
    void (*update)(const configs::OptimizerConfig& config, const Chunk& chunk,
                   const UpdateStep& step);
  };

 private:
  configs::OptimizerConfig config_;
  TensorFormula formula_;
};

// Returns the formula that `config` names, by LibTorch's operators: a TensorRule, or Lamb.
std::unique_ptr<UpdateRule> make_tensor_rule(const configs::OptimizerConfig& config);

// Returns a divisor for the fused kernels, which divide by their grad_scale as they read the
// gradient: 1 / grad_factor, or nullopt for 1. If the reciprocal of the factor is no normal fp32
// number, the factor is applied here in a separate pass over `grad`.
std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor);

}  // namespace zeroth::optim
