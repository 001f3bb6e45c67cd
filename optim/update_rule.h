// An optimizer's formula on one flat range, wherever that range rests and whoever shards it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "configs/config.h"

namespace zeroth::optim {

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // The states that each element carries, by their names in checkpoints ("exp_avg"). Each is fp32,
  // as long as the master, and starts at zero.
  virtual std::span<const std::string_view> state_names() const = 0;

  // All 1-D, contiguous, fp32, of one length and on one device, without autograd history; states
  // in the order of state_names().
  struct Range {
    torch::Tensor master;
    torch::Tensor grad;
    std::span<torch::Tensor> states;
  };

  // Applies update number `update` (from 1) at rate `lr` to master and states, in place, queued on
  // the device's current stream. The gradient is first multiplied by `grad_factor` (unscaling and
  // clipping in one; finite and above 0) and may be overwritten. Elements are independent: a range
  // gives the same bits whole, on any number of threads, or in tiles that begin at multiples of
  // kTileAlignment.
  virtual void apply(const Range& range, int64_t update, double lr, double grad_factor) const = 0;

  // In elements; a multiple of every vector length. The last elements of a tile, short of a vector,
  // are rounded differently by vectorised kernels.
  static constexpr int64_t kTileAlignment = 64;
};

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config);

}  // namespace zeroth::optim
