// A rule beside the host's, whose bits it has to give: what there is to update, in every format.
#pragma once

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "optim/kernel_rules.h"
#include "tests/optim/cpu_arrays.h"

namespace zeroth::optim {

struct RuleCase {
  OptimizerConfig config;
  torch::Dtype grad;
  std::optional<torch::Dtype> copy;
};

inline std::vector<RuleCase> rule_cases() {
  std::vector<RuleCase> all;
  std::vector<OptimizerConfig> configs = cpu_rules();
  configs.push_back({.kind = Kind::kAdamW8bit});
  for (OptimizerConfig config : configs) {
    for (const auto grad : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      all.push_back({config, grad, {}});
      all.push_back({config, grad, torch::kBFloat16});
      all.push_back({config, grad, torch::kHalf});
    }
    if (config.kind == Kind::kAdamW8bit) continue;
    config.bf16_masters = true;
    all.push_back({config, torch::kFloat, {}});
    config.bf16_states = true;
    all.push_back({config, torch::kBFloat16, {}});
  }
  return all;
}

// What a rule updates: `count` elements from `first` on of longer tensors, the same for the same
// arguments.
struct RuleArrays {
  RuleCase what;
  int64_t first;
  torch::Device device;
  torch::Tensor master;
  std::vector<torch::Tensor> states, maxima;
  torch::Tensor copy;

  RuleArrays(const RuleCase& rule_case, int64_t begin, int64_t count, torch::Device where)
      : what(rule_case), first(begin), device(where) {
    const CpuRule rule(what.config);
    at::manual_seed(3);
    master = placed(at::randn({count}), rule.master_dtype());
    for (size_t i = 0; i < rule.state_names().size(); ++i) {
      const torch::Tensor values =
          rule.is_coded() ? at::randint(256, {count}) : at::rand({count}) / 100;
      states.push_back(placed(values, rule.state_dtype()));
      if (!rule.is_coded()) continue;
      maxima.push_back(placed(at::rand({kernel::code_blocks(count)}) / 100, torch::kFloat));
    }
    if (what.copy) copy = placed(at::zeros({count}), *what.copy);
  }

  // On the device, as far from a boundary of 16 bytes as `first` elements.
  torch::Tensor placed(const torch::Tensor& values, torch::Dtype dtype) const {
    const auto like = torch::TensorOptions(device).dtype(dtype);
    return at::empty({first + values.numel()}, like).slice(0, first).copy_(values);
  }

  void apply(const UpdateRule& rule, const torch::Tensor& grad, int64_t update,
             std::span<const ParamGroupRange> param_groups = {}) {
    UpdateStep step = default_step(what.config, update);
    step.weight_decay = 0.1;
    step.grad_factor = 0.37;
    step.rounding_seed = 5;
    // Columns of a matrix, whose elements' numbers wrap around in their lower half, then others.
    const std::vector<OffsetSpan> offsets = {
        {0, {.first = (int64_t{7} << 32) - 30, .left = 20, .length = 37, .gap = 6}},
        {704, {.first = 5}}};
    const UpdateRule::Chunk chunk{master, grad, states, copy, 0, offsets, {}, maxima};
    param_groups.empty() ? rule.apply(chunk, step)
                         : rule.apply_param_groups(chunk, step, param_groups);
  }

  std::vector<torch::Tensor> all() const {
    std::vector<torch::Tensor> tensors = states;
    tensors.insert(tensors.end(), maxima.begin(), maxima.end());
    tensors.push_back(master);
    if (copy.defined()) tensors.push_back(copy);
    return tensors;
  }
};

// Three updates of every case by DeviceRule on `device` and by CpuRule.
inline void expect_bits_match_cpu(torch::Device device, std::initializer_list<int64_t> counts) {
  for (const RuleCase& what : rule_cases()) {
    const CpuRule on_host(what.config);
    const DeviceRule on_device(what.config);
    for (const int64_t first : {0, 3}) {
      for (const int64_t count : counts) {
        RuleArrays host(what, first, count, torch::kCPU), other(what, first, count, device);
        for (int64_t update = 1; update <= 3; ++update) {
          const torch::Tensor grad = at::randn({count});
          host.apply(on_host, host.placed(grad, what.grad), update);
          other.apply(on_device, other.placed(grad, what.grad), update);
        }
        CAPTURE(static_cast<int>(what.config.kind));
        CAPTURE(static_cast<int>(what.grad));
        CAPTURE(count);
        CAPTURE(first);
        const auto expected = host.all(), got = other.all();
        for (size_t i = 0; i < expected.size(); ++i) {
          CHECK(at::equal(got[i].to(torch::kCPU), expected[i]));
        }
      }
    }
  }
}

}  // namespace zeroth::optim
