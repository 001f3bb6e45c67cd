// One flat range with its optimizer states, and numbers to fill it with.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>

#include <utility>
#include <vector>

#include "optim/update_rule.h"

namespace zeroth::optim {

// The same numbers as in tools/make_optim_fixtures.py, exact in fp32.
inline torch::Tensor initial(int64_t count) {
  const torch::Tensor i = at::arange(count, torch::kLong);
  return ((i * 37).remainder(101) - 50).to(torch::kFloat) / 256;
}

inline torch::Tensor gradient(int64_t count, int64_t update) {
  const torch::Tensor i = at::arange(count, torch::kLong);
  return ((i * 7919 + update * 104729).remainder(2003) - 1001).to(torch::kFloat) / 1024;
}

// A formula has two rules on the CPU; what it promises holds for both.
using RuleMaker = std::unique_ptr<UpdateRule> (*)(const configs::OptimizerConfig&);
inline constexpr RuleMaker kRuleMakers[] = {
    [](const configs::OptimizerConfig& config) { return make_tensor_rule(config); },
    [](const configs::OptimizerConfig& config) { return make_update_rule(config, torch::kCPU); },
};

struct FlatState {
  configs::OptimizerConfig config;
  std::unique_ptr<UpdateRule> rule;
  torch::Tensor master;
  std::vector<torch::Tensor> states;

  FlatState(const configs::OptimizerConfig& optimizer, torch::Tensor start,
            RuleMaker make = kRuleMakers[0])
      : config(optimizer), rule(make(optimizer)), master(std::move(start)) {
    for (size_t i = 0; i < rule->state_names().size(); ++i) {
      states.push_back(at::full_like(master, rule->initial_state()));
    }
  }

  UpdateStep step(int64_t update, double factor) const {
    UpdateStep step = default_step(config, update);
    step.grad_factor = factor;
    return step;
  }

  void apply(torch::Tensor grad, int64_t update, double factor = 1) {
    update_parameter(*rule, {master, std::move(grad), states}, step(update, factor));
  }

  // Elements [begin, end), sharing memory.
  void apply_chunk(const torch::Tensor& grad, int64_t update, int64_t begin, int64_t end) {
    std::vector<torch::Tensor> chunk_states;
    for (const torch::Tensor& state : states) chunk_states.push_back(state.slice(0, begin, end));
    rule->apply({master.slice(0, begin, end), grad.slice(0, begin, end), chunk_states},
                step(update, /*factor=*/0.3));
  }
};

}  // namespace zeroth::optim
