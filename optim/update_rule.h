// An optimizer's formula on one tile of flat arrays, wherever these rest and whoever shards them.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "configs/config.h"
#include "optim/element_offsets.h"
#include "optim/update_step.h"

namespace zeroth::optim {

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // The states that each element carries, by their names in checkpoints ("exp_avg"). Each is of
  // state_dtype(), as long as the master, and starts at initial_state().
  virtual std::span<const std::string_view> state_names() const = 0;
  virtual double initial_state() const { return 0; }
  // fp32, or bf16 where the configuration says so: such a master is the working weight.
  virtual torch::Dtype state_dtype() const { return torch::kFloat32; }
  virtual torch::Dtype master_dtype() const { return torch::kFloat32; }

  // All 1-D, contiguous, of one length and on one device, without autograd history; states in the
  // order of state_names().
  struct Chunk {
    torch::Tensor master;
    torch::Tensor grad;  // fp32, bf16 or fp16 (fp16: for an fp32 master only)
    std::span<torch::Tensor> states;
    // bf16 or fp16: receives the new master, rounded; or undefined. Never of a bf16 master.
    torch::Tensor copy = {};
    // What rests in bf16 is rounded by an element's number among all of the model, the same on any
    // ranks. Of the first element it is this, or what `numbers` have at this place.
    int64_t first_element = 0;
    std::span<const OffsetSpan> offsets = {};
    // With a NormPass, which has read the gradient: what it gave. `grad` is undefined then.
    torch::Tensor ratios = {};
  };

  // What goes before apply_param_groups() where a rate depends on norms of whole parameters, which
  // tiles and ranks cut: a pass over all of a parameter's tiles.
  class NormPass {
   public:
    virtual ~NormPass() = default;

    // Brings the states up to date, and adds to row ParamGroupRange::parameter of `sums`, fp64
    // [parameters, 2] on the tile's device, the squares of the stretch's weights and of its
    // direction. Queued, and the gradient read, as by apply(). However tiles cut a parameter, its
    // sums differ in the rounding of fp64 alone; cut alike, in no bit.
    virtual void sum(const Chunk& chunk, const UpdateStep& step,
                     std::span<const ParamGroupRange> param_groups,
                     const torch::Tensor& sums) const = 0;
    // Chunk::ratios [parameters], fp32, on the device of `sums`: those of whole parameters.
    virtual torch::Tensor ratios(const torch::Tensor& sums) const = 0;
  };
  // Null: there are no norms, and apply() is all.
  virtual const NormPass* norm_pass() const { return nullptr; }

  // Applies an update to master and states, in place, queued on the device's current stream. The
  // gradient is first multiplied by the step's grad_factor and may be overwritten. Elements are
  // independent: a tile gives the same bits whole, on any number of threads, or in parts that begin
  // at multiples of kChunkAlignment.
  virtual void apply(const Chunk& chunk, const UpdateStep& step) const = 0;

  // apply() to stretches that follow each other and cover the tile, with the same bits as to each
  // by itself.
  virtual void apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                                  std::span<const ParamGroupRange> param_groups) const;

  // In elements; a multiple of every vector length. The last elements of a tile, short of a vector,
  // are rounded differently by vectorised kernels.
  static constexpr int64_t kChunkAlignment = 64;
};

// An update of a tile that is all of one parameter, with a norm pass before it if there is one.
void update_parameter(const UpdateRule& rule, UpdateRule::Chunk chunk, const UpdateStep& step);

// The step's rates as `config` sets them, for update `update`.
UpdateStep default_step(const configs::OptimizerConfig& config, int64_t update);

// For tiles on `device`: one pass for every formula, on the CPU (optim/cpu_rule.h) as on a GPU
// (optim/device_rule.h), of the same numbers; Lamb, of two passes, on the CPU alone. Elsewhere, or
// where the GPU library has no such kernel, LibTorch's operators: then an Error for what should
// rest in bf16.
std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device);

}  // namespace zeroth::optim
