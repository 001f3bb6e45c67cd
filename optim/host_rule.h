// Every optimizer on host memory, through optim/host_update.h.
#pragma once

#include "optim/host_update.h"
#include "optim/update_rule.h"

namespace zeroth::optim {

// One pass over a range on the CPU: gradient in, master and states updated, copy out. Blocks until
// done; leaves the gradient as it is.
class HostRule : public UpdateRule {
 public:
  explicit HostRule(const configs::OptimizerConfig& config);

  std::span<const std::string_view> state_names() const override { return names_->state_names(); }
  double initial_state() const override { return names_->initial_state(); }
  torch::Dtype state_dtype() const override { return dtype_of(config_.bf16_states); }
  torch::Dtype master_dtype() const override { return dtype_of(config_.bf16_masters); }
  void apply(const Range& range, const Step& step) const override;

 private:
  static torch::Dtype dtype_of(bool bf16) { return bf16 ? torch::kBFloat16 : torch::kFloat32; }

  configs::OptimizerConfig config_;
  std::unique_ptr<UpdateRule> names_;  // the same formula on tensors knows its states
  HostUpdate update_;
};

}  // namespace zeroth::optim
