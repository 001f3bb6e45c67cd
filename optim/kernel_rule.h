// KernelRule is the common base of the rules that use our own kernels, for the CPU and for a GPU.
#pragma once

#include <memory>

#include "optim/tensor_rule.h"
#include "optim/update_rule.h"

namespace zeroth::optim {

// A KernelRule supports any formula; masters and states are stored in the configured dtypes.
class KernelRule : public UpdateRule {
 public:
  explicit KernelRule(const configs::OptimizerConfig& config)
      : config_(config), names_(make_tensor_rule(config)) {}

  std::span<const std::string_view> state_names() const override { return names_->state_names(); }
  double initial_state() const override { return names_->initial_state(); }
  torch::Dtype state_dtype() const override { return format(config_.bf16_states); }
  torch::Dtype master_dtype() const override { return format(config_.bf16_masters); }

 protected:
  const configs::OptimizerConfig& config() const { return config_; }

 private:
  static torch::Dtype format(bool bf16) { return bf16 ? torch::kBFloat16 : torch::kFloat32; }

  configs::OptimizerConfig config_;
  std::unique_ptr<UpdateRule> names_;  // the same formula on tensors, which knows its states
};

}  // namespace zeroth::optim
