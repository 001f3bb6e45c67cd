#include "optim/update_rule.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "base/error.h"
#include "optim/kernel_rules.h"
#include "optim/lamb.h"

namespace zeroth::optim {
namespace {

void check_tensor(const torch::Tensor& tensor, const torch::Tensor& master, std::string_view name,
                  std::initializer_list<torch::ScalarType> dtypes, int64_t block = 1) {
  const int64_t entries = (master.numel() + block - 1) / block;
  ZEROTH_CHECK(tensor.dim() == 1 && tensor.is_contiguous() && tensor.numel() == entries,
               "{} has {} elements in {} dimensions, the master {}", name, tensor.numel(),
               tensor.dim(), master.numel());
  const bool known = std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) != dtypes.end();
  ZEROTH_CHECK(known && tensor.device() == master.device(), "{} is {} on {}, the master {} on {}",
               name, c10::toString(tensor.scalar_type()), tensor.device().str(),
               c10::toString(master.scalar_type()), master.device().str());
}

}  // namespace

UpdateRule::Chunk UpdateRule::Chunk::narrow(int64_t begin, int64_t size) const {
  const auto part = [&](const torch::Tensor& x) {
    return x.defined() ? x.narrow(0, begin, size) : torch::Tensor();
  };
  Chunk narrowed = *this;
  for (torch::Tensor* const x : {&narrowed.master, &narrowed.grad, &narrowed.copy}) *x = part(*x);
  for (torch::Tensor& state : narrowed.states) state = part(state);
  for (torch::Tensor& maximum : narrowed.maxima) {
    maximum = maximum.narrow(0, begin / kernel::kCodeBlock, kernel::code_blocks(size));
  }
  narrowed.first_element += begin;
  return narrowed;
}

std::vector<UpdateRule::StateArray> UpdateRule::state_arrays() const {
  std::vector<StateArray> arrays;
  for (const std::string_view name : state_names()) arrays.push_back({name, state_dtype()});
  if (!is_coded()) return arrays;
  for (size_t i = 0; i < traits_.num_states; ++i) {
    arrays.push_back({traits_.maxima_names[i], torch::kFloat, kernel::kCodeBlock});
  }
  return arrays;
}

void UpdateRule::apply_param_groups(const Chunk& chunk, const UpdateStep& step,
                                    std::span<const ParamGroupRange> param_groups) const {
  for (const ParamGroupRange& group : param_groups) {
    apply(chunk.narrow(group.begin, group.end - group.begin),
          group.decays ? step : step.without_decay());
  }
}

void UpdateRule::check_arguments(const Chunk& chunk, const UpdateStep& step) const {
  ZEROTH_CHECK(step.update >= 1, "update {}, not counted from 1", step.update);
  ZEROTH_CHECK(std::isfinite(step.grad_factor) && step.grad_factor > 0, "gradient factor {}",
               step.grad_factor);
  const auto names = state_names();
  ZEROTH_CHECK(chunk.states.size() == names.size(), "{} states, not {}", chunk.states.size(),
               names.size());
  constexpr auto kFloat = torch::kFloat, kBf16 = torch::kBFloat16, kHalf = torch::kHalf;
  check_tensor(chunk.master, chunk.master, "master", {master_dtype()});
  if (!chunk.ratios.defined()) {
    check_tensor(chunk.grad, chunk.master, "gradient", {kFloat, kBf16, kHalf});
  }
  for (size_t i = 0; i < names.size(); ++i) {
    check_tensor(chunk.states[i], chunk.master, names[i], {state_dtype()});
  }
  ZEROTH_CHECK(chunk.maxima.size() == (is_coded() ? names.size() : 0), "maxima of {} of {} states",
               chunk.maxima.size(), names.size());
  for (const torch::Tensor& maxima : chunk.maxima) {
    check_tensor(maxima, chunk.master, "maxima", {kFloat}, kernel::kCodeBlock);
  }
  if (chunk.copy.defined()) check_tensor(chunk.copy, chunk.master, "copy", {kBf16, kHalf});
}

UpdateStep default_step(const configs::OptimizerConfig& config, int64_t update) {
  return {.update = update,
          .lr = config.lr,
          .betas = config.betas,
          .weight_decay = config.weight_decay};
}

void update_parameter(const UpdateRule& rule, UpdateRule::Chunk chunk, const UpdateStep& step) {
  if (const UpdateRule::NormPass* const norms = rule.norm_pass()) {
    const ParamGroupRange whole{0, chunk.master.numel()};
    const torch::Tensor sums = at::zeros({1, 2}, chunk.master.options().dtype(torch::kDouble));
    norms->sum(chunk, step, {&whole, 1}, sums);
    chunk.ratios = norms->ratios(sums);
    chunk.grad = torch::Tensor();
  }
  rule.apply(chunk, step);
}

std::optional<int64_t> min_coded_elements(const configs::OptimizerConfig& config) {
  if (!kernel::optimizer_traits(config).is_coded()) return std::nullopt;
  return config.min_8bit_size;
}

std::unique_ptr<UpdateRule> make_update_rule(const configs::OptimizerConfig& config,
                                             torch::Device device) {
  const bool lamb = config.kind == configs::OptimizerConfig::Kind::kLamb;
  if (lamb && device.is_cpu()) return std::make_unique<CpuLamb>(config);
  if (device.is_cpu()) return std::make_unique<CpuRule>(config);
  if (!lamb && DeviceRule::runs_on(device)) return std::make_unique<DeviceRule>(config);
  if (kernel::optimizer_traits(config).is_coded()) {
    throw Error("optimizer.type AdamW8bit has no update on {}", device.str());
  }
  if (config.keeps_bf16()) {
    throw Error(
        "bf16.bf16_master_weights_and_grads: true needs zero_optimization.offload_optimizer.step "
        "\"cpu\", found updates on {}",
        device.str());
  }
  return make_tensor_rule(config);
}

}  // namespace zeroth::optim
