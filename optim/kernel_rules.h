// The rules that use our own kernels: CpuRule in CPU memory, DeviceRule on a GPU.
#pragma once

#include <span>
#include <string_view>

#include "configs/config.h"
#include "optim/cpu/cpu_update.h"
#include "optim/tensor_rules.h"
#include "optim/update_rule.h"

namespace zeroth::optim {

// A KernelRule supports any formula but Lamb; masters and states are stored in the configured
// dtypes.
class KernelRule : public UpdateRule {
 public:
  explicit KernelRule(const configs::OptimizerConfig& config)
      : config_(config), tensor_rule_(config) {}

  std::span<const std::string_view> state_names() const override {
    return tensor_rule_.state_names();
  }
  double initial_state() const override { return tensor_rule_.initial_state(); }
  torch::Dtype state_dtype() const override { return to_dtype(config_.bf16_states); }
  torch::Dtype master_dtype() const override { return to_dtype(config_.bf16_masters); }

 protected:
  const configs::OptimizerConfig& config() const { return config_; }

 private:
  static torch::Dtype to_dtype(bool bf16) { return bf16 ? torch::kBFloat16 : torch::kFloat32; }

  configs::OptimizerConfig config_;
  TensorRule tensor_rule_;  // the same formula on tensors, which knows its states
};

// CpuRule makes one pass over a chunk on the CPU, through optim/cpu/cpu_update.h: it reads the
// gradient, updates master and states, and writes the copy. Blocks until done; does not change the
// gradient.
class CpuRule : public KernelRule {
 public:
  explicit CpuRule(const configs::OptimizerConfig& config) : KernelRule(config), update_(config) {}

  void apply(const Chunk& chunk, const UpdateStep& step) const override;

 private:
  CpuUpdate update_;
};

// DeviceRule runs one kernel over a chunk on a GPU, as CpuRule does, with the operations of
// optim/cpu/cpu_update.h in their order and the same bf16 rounding. It is the operator
// zeroth::update_ of torch's dispatcher, whose CUDA kernel is in optim/gpu. Does not change the
// gradient.
class DeviceRule : public KernelRule {
 public:
  explicit DeviceRule(const configs::OptimizerConfig& config) : KernelRule(config) {}

  // Returns whether the loaded GPU library has such a kernel.
  static bool runs_on(torch::Device device);

  void apply(const Chunk& chunk, const UpdateStep& step) const override;
  // Applies as many parameter groups at once as fit into one call of the kernel.
  void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                          std::span<const ParamGroupRange> param_groups) const override;
};

}  // namespace zeroth::optim
