// The rule for a GPU beside the rule for the host, whose numbers it has to give.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <chrono>

#include "optim/device_rule.h"
#include "optim/host_rule.h"

namespace zeroth::optim {
namespace {

using configs::OptimizerConfig;
using torch::Tensor;
using Kind = OptimizerConfig::Kind;

struct Case {
  OptimizerConfig config;
  torch::Dtype grad;
  std::optional<torch::Dtype> copy;
};

std::vector<Case> cases() {
  const std::vector<OptimizerConfig> configs = {
      {.kind = Kind::kAdamW},
      {.kind = Kind::kAdam, .lr = 0.1, .betas = {0.25, 0.5}, .eps = 1e-4},
      {.kind = Kind::kLion, .betas = {0.9, 0.99}},
      {.kind = Kind::kAdagrad, .lr = 1e-2, .eps = 1e-10, .lr_decay = 0.1},
      {.kind = Kind::kSgd, .lr = 0.1},
      {.kind = Kind::kSgd, .lr = 0.1, .momentum = 0.9, .dampening = 0.3},
      {.kind = Kind::kSgd, .lr = 0.1, .momentum = 0.9, .nesterov = true},
  };
  std::vector<Case> all;
  for (OptimizerConfig config : configs) {
    for (const auto grad : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      all.push_back({config, grad, {}});
      all.push_back({config, grad, torch::kBFloat16});
      all.push_back({config, grad, torch::kFloat16});
    }
    config.bf16_masters = true;
    all.push_back({config, torch::kFloat32, {}});
    config.bf16_states = true;
    all.push_back({config, torch::kBFloat16, {}});
  }
  return all;
}

// What a rule updates: master, states and the copy, elements from `first` on of longer tensors.
struct Arrays {
  Tensor master;
  std::vector<Tensor> states;
  Tensor copy;

  Arrays(const Case& what, const UpdateRule& rule, int64_t first, int64_t count) {
    torch::manual_seed(3);
    const auto part = [&](const Tensor& x) { return x.slice(0, first, first + count); };
    master = part(torch::randn({first + count}).to(rule.master_dtype()));
    for (size_t i = 0; i < rule.state_names().size(); ++i) {
      states.push_back(part((torch::rand({first + count}) / 100).to(rule.state_dtype())));
    }
    if (what.copy) copy = part(torch::zeros({first + count}, *what.copy));
  }

  // Keeps the offsets from a boundary of 16 bytes.
  void move_to(torch::Device device, int64_t first) {
    const auto moved = [&](Tensor& x) {
      const Tensor room = torch::empty({first + x.numel()}, x.options().device(device));
      x = room.slice(0, first).copy_(x);
    };
    moved(master);
    for (Tensor& state : states) moved(state);
    if (copy.defined()) moved(copy);
  }

  void apply(const Case& what, const UpdateRule& rule, const Tensor& grad, int64_t update) {
    UpdateRule::Step step = usual_step(what.config, update);
    step.weight_decay = 0.1;
    step.grad_factor = 0.37;
    step.rounding_seed = 5;
    rule.apply(
        {master, grad.to(what.grad).to(master.device()), states, copy, (int64_t{7} << 32) - 30},
        step);
  }

  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors = states;
    tensors.push_back(master);
    if (copy.defined()) tensors.push_back(copy);
    return tensors;
  }
};

}  // namespace

TEST_CASE("updates on the GPU give the bits of updates on the host") {
  REQUIRE(DeviceRule::runs_on(torch::kCUDA));
  for (const Case& what : cases()) {
    const HostRule on_host(what.config);
    const DeviceRule on_gpu(what.config);
    for (const int64_t first : {0, 3}) {
      for (const int64_t count : {0, 1, 7, 1000, 100'003}) {
        Arrays host(what, on_host, first, count), gpu(what, on_host, first, count);
        gpu.move_to(torch::kCUDA, first);
        for (int64_t update = 1; update <= 3; ++update) {
          const Tensor grad = torch::randn({count});
          host.apply(what, on_host, grad, update);
          gpu.apply(what, on_gpu, grad, update);
        }
        CAPTURE(static_cast<int>(what.config.kind));
        CAPTURE(static_cast<int>(what.grad));
        CAPTURE(count);
        CAPTURE(first);
        const auto expected = host.all(), got = gpu.all();
        for (size_t i = 0; i < expected.size(); ++i) {
          CHECK(torch::equal(got[i].to(torch::kCPU), expected[i]));
        }
      }
    }
  }
}

TEST_CASE("what is not finite reaches master, moments and copy on the GPU as on the host") {
  const Case what{{.kind = Kind::kAdamW}, torch::kFloat32, torch::kBFloat16};
  const HostRule on_host(what.config);
  const DeviceRule on_gpu(what.config);
  Arrays host(what, on_host, 0, 64), gpu(what, on_host, 0, 64);
  gpu.move_to(torch::kCUDA, 0);
  Tensor grad = torch::randn({64});
  grad[3] = INFINITY;
  grad[20] = -INFINITY;
  grad[40] = NAN;
  host.apply(what, on_host, grad, 1);
  gpu.apply(what, on_gpu, grad, 1);
  const auto expected = host.all(), got = gpu.all();
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(torch::allclose(got[i].to(torch::kCPU), expected[i], 0, 0, /*equal_nan=*/true));
  }
}

TEST_CASE("an update on the GPU runs at more than half the speed of a copy") {
  constexpr int64_t kCount = 64'000'000;
  const Case what{{.kind = Kind::kAdamW}, torch::kBFloat16, torch::kBFloat16};
  const DeviceRule rule(what.config);
  Arrays arrays(what, rule, 0, kCount);
  arrays.move_to(torch::kCUDA, 0);
  const Tensor grad = torch::randn({kCount}, torch::kCUDA).to(torch::kBFloat16);
  const Tensor wide = torch::empty({kCount}, torch::kCUDA), other = torch::empty_like(wide);
  const auto seconds = [&](const auto& work) {
    work();
    torch::cuda::synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) work();
    torch::cuda::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 10;
  };
  const double update = seconds([&] { arrays.apply(what, rule, grad, 1); });
  const double copy = seconds([&] { other.copy_(wide); });
  const double of_update = 28e-9 * kCount / update, of_copy = 8e-9 * kCount / copy;
  MESSAGE("AdamW: ", of_update, " GB/s, a copy: ", of_copy);
  CHECK(of_update > 0.5 * of_copy);
}

}  // namespace zeroth::optim
