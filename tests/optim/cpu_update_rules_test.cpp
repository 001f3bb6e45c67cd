// Host updates beside the rules that update tensors.
#include <ATen/TensorOperators.h>
#include <doctest/doctest.h>

#include "optim/update_rule.h"
#include "tests/optim/cpu_arrays.h"

namespace zeroth::optim::cpu_update_rules_test {
namespace {

torch::Tensor tensor_of(std::vector<float>& values) {
  return torch::from_blob(values.data(), {static_cast<int64_t>(values.size())}, torch::kFloat);
}

// The gradient as an update rule takes it.
torch::Tensor fp32_grad(CpuArrays& arrays) {
  if (arrays.grad_format == Format::kFp32) return tensor_of(arrays.wide_grad).clone();
  const auto type = arrays.grad_format == Format::kBf16 ? torch::kBFloat16 : torch::kHalf;
  return torch::from_blob(arrays.grad.data(), {arrays.count}, type).to(torch::kFloat);
}

void apply_rule(const OptimizerConfig& config, CpuArrays& arrays, const UpdateStep& step) {
  const auto rule = make_tensor_rule(config);
  std::vector<torch::Tensor> states;
  for (size_t i = 0; i < rule->state_names().size(); ++i) {
    states.push_back(tensor_of(arrays.states[i]));
  }
  rule->apply({tensor_of(arrays.master), fp32_grad(arrays), states}, step);
}

// `bits`: the same bits, else up to a few roundings. Finite numbers alone are compared by value.
void expect_alike(const std::vector<float>& host, const std::vector<float>& rule, size_t whole) {
  int64_t wrong = 0;
  for (size_t i = 0; i < host.size(); ++i) {
    const float a = host[i], b = rule[i];
    if (i < whole) {
      wrong += std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b) && (a == a || b == b);
    } else if (std::isfinite(a) || std::isfinite(b)) {
      wrong += !(std::abs(a - b) <= 1e-6 * std::abs(a) + 1e-6);
    }
  }
  CHECK(wrong == 0);
}

// Elements in which two addends leave little: there a rounding shows in the step of a rule
// that divides by sizes, or takes signs.
torch::Tensor cancelled(const OptimizerConfig& config, CpuArrays& arrays, double decay,
                        double factor) {
  const auto leaves_little = [](const torch::Tensor& a, const torch::Tensor& b) {
    return (a + b).abs() < 0.1 * (a.abs() + b.abs());
  };
  const torch::Tensor grad = fp32_grad(arrays).to(torch::kDouble) * factor;
  const torch::Tensor decayed = tensor_of(arrays.master).to(torch::kDouble) * decay;
  const torch::Tensor moment = tensor_of(arrays.states[0]).to(torch::kDouble);
  torch::Tensor found = leaves_little(grad, decayed);
  for (const torch::Tensor& gradient : {grad, grad + decayed}) {
    for (const double beta : config.betas) {
      found = found.logical_or(leaves_little(beta * moment, (1 - beta) * gradient));
    }
    found = found.logical_or(leaves_little(config.momentum * moment, gradient));
  }
  return found;
}

void expect_rule(const OptimizerConfig& config, CpuArrays start, double decay, double factor) {
  CpuArrays host = start, rule = start;
  const CpuUpdate update(config);
  torch::Tensor turned = torch::zeros({start.count}, torch::kBool);
  for (int64_t n = 1; n <= 3; ++n) {
    const UpdateStep step = cpu_step(config, n, decay, factor);
    host.set_grad(static_cast<uint64_t>(n));
    rule.set_grad(static_cast<uint64_t>(n));
    turned = turned.logical_or(cancelled(config, rule, decay, factor));
    update.apply(host.chunk(), step);
    apply_rule(config, rule, step);
  }
  // LibTorch's loops for other processors fuse no products.
  const int64_t alignment = UpdateRule::kChunkAlignment;
  const int64_t whole = libtorch_fuses_products() ? start.count / alignment * alignment : 0;
  CAPTURE(static_cast<int>(config.kind));
  CAPTURE(static_cast<int>(start.grad_format));
  CAPTURE(start.count);
  CAPTURE(decay);
  CAPTURE(factor);
  if (!libtorch_fuses_products()) {
    CHECK(turned.sum().item<int64_t>() <= 2 + start.count / 3);  // most are compared
    for (CpuArrays* arrays : {&host, &rule}) {
      for (auto* values : {&arrays->master, &arrays->states[0], &arrays->states[1]}) {
        tensor_of(*values).masked_fill_(turned, 0);
      }
    }
  }
  expect_alike(host.master, rule.master, static_cast<size_t>(whole));
  for (int i = 0; i < 2; ++i) {
    expect_alike(host.states[i], rule.states[i], static_cast<size_t>(whole));
  }
}

}  // namespace

TEST_CASE("a host update gives the bits of the update rule, its last elements up to rounding") {
  for (const OptimizerConfig& config : cpu_rules()) {
    for (const Format grad : {Format::kFp32, Format::kBf16, Format::kFp16}) {
      for (const int64_t count : {5, 64, 1000, 16391}) {
        const CpuArrays start = arrays_for(config, count, grad, Format::kFp32);
        for (const double decay : {0.0, 0.1}) {
          for (const double factor : {1.0, 0.37, 1.0 / 65536, 1e-39}) {
            // Unfused, LibTorch's products of subnormal numbers are rounded to nothing.
            if (factor == 1e-39 && !libtorch_fuses_products()) continue;
            expect_rule(config, start, decay, factor);
          }
        }
      }
    }
  }
}

TEST_CASE("gradients that are not finite go the way of the update rule") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const OptimizerConfig& config : cpu_rules()) {
    CpuArrays start = arrays_for(config, 128, Format::kFp32, Format::kFp32), rule = start;
    for (CpuArrays* arrays : {&start, &rule}) {
      arrays->wide_grad[3] = kInfinity;
      arrays->wide_grad[20] = -kInfinity;
      arrays->wide_grad[40] = std::numeric_limits<float>::quiet_NaN();
    }
    const UpdateStep step = cpu_step(config, 2, 0.1, 0.5);
    CpuUpdate(config).apply(start.chunk(), step);
    apply_rule(config, rule, step);
    CAPTURE(static_cast<int>(config.kind));
    if (libtorch_fuses_products()) CHECK(same(start, rule));
  }
}

}  // namespace zeroth::optim::cpu_update_rules_test
