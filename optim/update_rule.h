// UpdateRule is an optimizer's formula on one chunk of flat arrays, on any device and with any
// sharding.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "configs/config.h"
#include "device/tensor.h"
#include "optim/coded_states.h"
#include "optim/element_offsets.h"
#include "optim/update_constants.h"
#include "optim/update_step.h"

namespace zeroth::optim {

class UpdateRule {
 public:
  explicit UpdateRule(const configs::OptimizerConfig& config)
      : config_(config), traits_(kernel::optimizer_traits(config)) {}
  virtual ~UpdateRule() = default;

  // Returns the names in checkpoints ("exp_avg") of the states that each element has. Each state is
  // of state_dtype(), as long as the master, and starts at initial_state().
  std::vector<std::string_view> state_names() const {
    return {traits_.state_names, traits_.state_names + traits_.num_states};
  }
  double initial_state() const {
    return traits_.initial_state != nullptr ? config_.*traits_.initial_state : 0;
  }
  // Returns uint8 for coded states (optim/coded_states.h), whose maxima are further arrays, in
  // fp32; else fp32, or bf16 if the configuration says so.
  torch::Dtype state_dtype() const {
    return is_coded() ? torch::kByte : to_dtype(config_.bf16_states);
  }
  bool is_coded() const { return traits_.is_coded(); }
  // Returns fp32, or bf16 if the configuration says so: such a master is the working weight.
  torch::Dtype master_dtype() const { return to_dtype(config_.bf16_masters); }

  // A StateArray is an array beside the master: one entry for each `block` elements, in which a
  // chunk's first element begins a block.
  struct StateArray {
    std::string_view name;  // in checkpoints
    torch::Dtype dtype;
    int64_t block = 1;
    int64_t entries(int64_t elements) const { return (elements + block - 1) / block; }
  };
  // Returns the states, then the maxima of coded states.
  std::vector<StateArray> state_arrays() const;

  // A Chunk holds tensors that are all 1-D, contiguous, of one length and on one device, without
  // autograd history; states are in the order of state_names().
  struct Chunk {
    torch::Tensor master;
    torch::Tensor grad;  // fp32, bf16 or fp16 (fp16: for an fp32 master only)
    std::vector<torch::Tensor> states;
    // Receives the new master, rounded to bf16 or fp16; may be undefined. Undefined for a bf16
    // master.
    torch::Tensor copy = {};
    // Values stored in bf16 are rounded by an element's global offset in the model, which is equal
    // on any ranks. For the first element it is this, or the entry of `offsets` at this index.
    int64_t first_element = 0;
    std::span<const OffsetSpan> offsets = {};
    // Result of the NormPass, if there is one. `grad` is then undefined: the pass has read it.
    torch::Tensor ratios = {};
    // Of coded states: [code blocks], fp32, in the order of `states`.
    std::vector<torch::Tensor> maxima = {};

    // Returns the elements [begin, begin + size). With coded states, `begin` begins a code block.
    Chunk narrow(int64_t begin, int64_t size) const;
  };

  // A NormPass is a pass over all chunks of a parameter before apply_param_groups(), for a rate
  // that depends on norms of full parameters, which chunks and ranks split.
  class NormPass {
   public:
    virtual ~NormPass() = default;

    // Updates the states, and adds the squares of the group's weights and of its direction to row
    // ParamGroupRange::parameter of `sums`, fp64 [parameters, 2] on the chunk's device. It queues
    // work and reads the gradient like apply(). If chunks split a parameter differently, its sums
    // differ in the rounding of fp64 alone; if they split it equally, in no bit.
    virtual void sum(const Chunk& chunk, const UpdateStep& step,
                     std::span<const ParamGroupRange> param_groups,
                     const torch::Tensor& sums) const = 0;
    // Returns Chunk::ratios [parameters], fp32, on the device of `sums`, from sums over full
    // parameters.
    virtual torch::Tensor ratios(const torch::Tensor& sums) const = 0;
  };
  // Returns null if the rule needs no norms and apply() is enough.
  virtual const NormPass* norm_pass() const { return nullptr; }

  // Applies an update to master and states, in place, queued on the device's current stream. The
  // gradient is first multiplied by the step's grad_factor and may be overwritten. Elements are
  // independent: a chunk gives the same bits in one call, on any number of threads, or in parts
  // that begin at multiples of alignment().
  virtual void apply(const Chunk& chunk, const UpdateStep& step) const = 0;

  // Applies an update to parameter groups that follow each other and cover the chunk, with the same
  // bits as apply() to each by itself.
  virtual void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                                  std::span<const ParamGroupRange> param_groups) const;

  // Throws an InternalError for a chunk or a step that would corrupt the weights.
  void check_arguments(const Chunk& chunk, const UpdateStep& step) const;

  // In elements; a multiple of every vector length. The last elements of a chunk, fewer than a
  // vector, are rounded differently by vectorized kernels.
  static constexpr int64_t kChunkAlignment = 64;
  int64_t alignment() const { return is_coded() ? kernel::kCodeBlock : kChunkAlignment; }

 protected:
  const configs::OptimizerConfig& config() const { return config_; }

 private:
  static torch::Dtype to_dtype(bool bf16) { return bf16 ? torch::kBFloat16 : torch::kFloat; }

  configs::OptimizerConfig config_;
  const kernel::OptimizerTraits& traits_;
};

// Updates a chunk that is a full parameter, with a norm pass before it if there is one.
void update_parameter(const UpdateRule& rule, UpdateRule::Chunk chunk, const UpdateStep& step);

// Returns the step's rates as `config` sets them, for update `update`.
UpdateStep default_step(const configs::OptimizerConfig& config, int64_t update);

// Returns the elements from which on a parameter's states are coded (optim/coded_states.h); unset:
// those of no parameter are. The others have the rule of OptimizerConfig::with_fp32_states().
std::optional<int64_t> min_coded_elements(const configs::OptimizerConfig& config);

// Returns the rule for chunks on `device`: one pass for every formula, on the CPU and on a GPU
// (optim/kernel_rules.h), with the same results; Lamb, in two passes, on the CPU alone. On other
// devices, or if the GPU library has no such kernel, returns LibTorch's operators, and throws an
// Error if the configuration stores anything in bf16 or as codes.
std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device);

// A TensorRule computes Adam, Adagrad, Lion or SGD by LibTorch's operators, on any device
// (optim/tensor_rules.cpp). It widens the gradient first and makes the copy in a pass afterwards;
// between them the formula is one fused kernel, or a few operators.
class TensorRule : public UpdateRule {
 public:
  // Supports every optimizer except Lamb (optim/lamb.h) and those with coded states.
  explicit TensorRule(const configs::OptimizerConfig& config);

  void apply(const Chunk& chunk, const UpdateStep& step) const override;

  // Updates a checked chunk; the gradient is fp32 and may be overwritten, the copy is ignored.
  using UpdateFunction = void(const configs::OptimizerConfig& config, const Chunk& chunk,
                              const UpdateStep& step);

 private:
  UpdateFunction* update_;
};

// Returns the formula that `config` names, by LibTorch's operators: a TensorRule, or Lamb.
std::unique_ptr<UpdateRule> make_tensor_rule(const configs::OptimizerConfig& config);

// Returns a divisor for the fused kernels, which divide by their grad_scale as they read the
// gradient: 1 / grad_factor, or nullopt for 1. If the reciprocal of the factor is no normal fp32
// number, the factor is applied here in a separate pass over `grad`.
std::optional<torch::Tensor> fold_factor(const torch::Tensor& grad, double grad_factor);

}  // namespace zeroth::optim
