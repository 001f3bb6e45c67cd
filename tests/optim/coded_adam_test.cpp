// Adam whose moments are codes of 8 bits, beside bitsandbytes' and beside Adam in fp32.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include <string_view>

#include "base/error.h"
#include "base/sha256.h"
#include "optim/coded_states.h"
#include "optim/kernel_rules.h"
#include "tests/optim/cpu_arrays.h"

namespace zeroth::optim::coded_adam_test {
namespace {

using kernel::kCodeBlock;
using torch::Tensor;

struct CodedState {
  OptimizerConfig config = {.kind = Kind::kAdamW8bit};
  Tensor master;
  std::vector<Tensor> codes, maxima;

  explicit CodedState(Tensor start) : master(std::move(start)) {
    for (int k = 0; k < 2; ++k) {
      codes.push_back(at::zeros({master.numel()}, torch::kByte));
      maxima.push_back(at::zeros({kernel::code_blocks(master.numel())}));
    }
  }

  UpdateRule::Chunk chunk(const Tensor& grad) const {
    return {.master = master, .grad = grad, .states = codes, .maxima = maxima};
  }
  void apply(const Tensor& grad, int64_t update) {
    CpuRule(config).apply(chunk(grad), default_step(config, update));
  }
  // A moment in fp32.
  Tensor exact(size_t k) const {
    Tensor values = at::empty_like(master);
    for (int64_t i = 0; i < values.numel(); ++i) {
      values.data_ptr<float>()[i] =
          kernel::decode(codes[k].data_ptr<uint8_t>()[i],
                         maxima[k].data_ptr<float>()[i / kCodeBlock], /*is_signed=*/k == 0);
    }
    return values;
  }
};

std::vector<int> first_eight(const Tensor& codes) {
  const auto* const at = codes.data_ptr<uint8_t>();
  return {at, at + 8};
}

std::string digest(const Tensor& x) {
  return to_hex(Sha256::of({static_cast<const char*>(x.const_data_ptr()), x.nbytes()}))
      .substr(0, 16);
}

// The numbers of the fixture.
Tensor initial_weights() {
  return ((at::arange(4096, torch::kLong) * 37).remainder(101) - 50).to(torch::kFloat) / 500;
}
Tensor gradient_of(int64_t step) {
  const Tensor i = at::arange(4096, torch::kLong);
  return ((i * 53 + step * 17).remainder(97) - 48).to(torch::kFloat) / 4800;
}

}  // namespace

TEST_CASE("three updates give the codes, maxima and weights of bitsandbytes' AdamW8bit") {
  CodedState state(initial_weights());
  state.apply(gradient_of(0), 1);
  CHECK(first_eight(state.codes[0]) == std::vector<int>{0, 191, 13, 204, 26, 217, 40, 231});
  CHECK(first_eight(state.codes[1]) == std::vector<int>{255, 63, 206, 116, 168, 145, 139, 175});
  CHECK(state.maxima[0].data_ptr<float>()[0] == 0.001F);
  CHECK(state.maxima[1].data_ptr<float>()[0] == 1e-7F);
  state.apply(gradient_of(1), 2);
  state.apply(gradient_of(2), 3);
  CHECK(first_eight(state.codes[0]) == std::vector<int>{5, 235, 24, 255, 44, 195, 68, 31});
  CHECK(first_eight(state.codes[1]) == std::vector<int>{227, 180, 180, 227, 148, 236, 132, 254});
  CHECK(digest(state.codes[0]) == "38ee152bca6ef9b1");
  constexpr double kWeights[] = {-0.0971608832, -0.0287660938, 0.0507479571, -0.0828951597};
  for (int i = 0; i < 4; ++i) {
    CHECK(std::abs(state.master.data_ptr<float>()[i] - kWeights[i]) < 1e-10);
  }
  // bitsandbytes quantizes on the CPU by a table of 65,536 magnitudes, which gives another code to
  // 85 small values of the second moment. Those are its neighbors.
  CHECK(digest(state.codes[1]) == "a17efcec601cb0ef");
}

TEST_CASE("the first update is that of Adam in fp32, and three stay near it") {
  CodedState state(initial_weights());
  Tensor master = initial_weights(), m = at::zeros({4096}), v = at::zeros({4096});
  const OptimizerConfig config = {};
  for (int64_t update = 1; update <= 3; ++update) {
    state.apply(gradient_of(update - 1), update);
    CpuRule(config).apply({master, gradient_of(update - 1), {m, v}}, default_step(config, update));
    const double gap = (state.master - master).abs().max().item<double>();
    CHECK(gap <= (update == 1 ? 1e-8 : 2.05e-5));
  }
}

// As bitsandbytes' own tests: after each update both continue from the same weights and moments.
TEST_CASE("fifty updates are as near Adam in fp32 as bitsandbytes' tests ask") {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    at::manual_seed(1);
    constexpr int64_t kCount = 1024 * 1024;
    const bool wide = dtype == torch::kFloat;
    CodedState state((at::randn({kCount}) * 0.1).to(dtype).to(torch::kFloat));
    Tensor master = state.master.clone(), m = at::zeros({kCount}), v = at::zeros({kCount});
    double error = 0, relative = 0;
    for (int64_t update = 1; update <= 50; ++update) {
      const Tensor grad = (at::randn({kCount}) * 0.01).to(dtype);
      state.apply(grad, update);
      CpuRule({}).apply({master, grad, {m, v}}, default_step({}, update));
      const Tensor gap = (state.master.to(dtype) - master).abs();
      error += gap.mean().item<double>() / 50;
      relative += (gap / (master.abs() + 1e-9)).mean().item<double>() / 50;
      for (const auto& [k, exact] :
           {std::pair<size_t, Tensor>(0, m), std::pair<size_t, Tensor>(1, v)}) {
        const Tensor stored = state.exact(k);
        CHECK(
            (at::isclose(exact, stored, /*rtol=*/1e-3, /*atol=*/3e-3) == 0).sum().item<int64_t>() <
            20);
        exact.copy_(stored);
      }
      master.copy_(master.to(dtype));
      state.master.copy_(master);
    }
    CAPTURE(wide);
    CHECK(error < (wide ? 6e-5 : 1.7e-4));
    CHECK(relative < (wide ? 6e-4 : 1.6e-3));
  }
}

TEST_CASE(
    "every level, number of threads and division of a chunk at code blocks gives one result") {
  constexpr int64_t kCount = 40 * 2048 + 77;
  for (const Format grad : {Format::kFp32, Format::kBf16, Format::kFp16}) {
    for (const Format copy : {Format::kFp32, Format::kBf16, Format::kFp16}) {
      const OptimizerConfig config = {.kind = Kind::kAdamW8bit};
      const auto run = [&](CpuIsa level, int64_t part) {
        CpuArrays arrays(kCount, grad, copy);
        std::vector<uint8_t> codes[2] = {std::vector<uint8_t>(kCount),
                                         std::vector<uint8_t>(kCount)};
        std::vector<float> maxima[2];
        for (auto& of_state : maxima) of_state.resize(kernel::code_blocks(kCount));
        for (int64_t update = 1; update <= 3; ++update) {
          arrays.set_grad(static_cast<uint64_t>(update));
          for (int64_t begin = 0; begin < kCount; begin += part) {
            CpuChunk chunk = arrays.chunk(begin, std::min(begin + part, kCount));
            for (size_t k = 0; k < 2; ++k) {
              chunk.states[k] = codes[k].data() + begin;
              chunk.maxima[k] = maxima[k].data() + begin / kCodeBlock;
            }
            CpuUpdate(config, level).apply(chunk, cpu_step(config, update, 0.1, 0.37));
          }
        }
        return std::tuple(arrays, codes[0], codes[1], maxima[0], maxima[1]);
      };
      const auto expected = run(CpuIsa::kBaseline, kCount);
      for (const CpuIsa level : cpu_levels()) {
        for (const int64_t part : {kCount, kCodeBlock, 7 * kCodeBlock}) {
          const auto got = run(level, part);
          CHECK(same(std::get<0>(got).master, std::get<0>(expected).master));
          CHECK(std::get<0>(got).copy == std::get<0>(expected).copy);
          CHECK(std::get<1>(got) == std::get<1>(expected));
          CHECK(std::get<2>(got) == std::get<2>(expected));
          CHECK(same(std::get<3>(got), std::get<3>(expected)));
          CHECK(same(std::get<4>(got), std::get<4>(expected)));
        }
      }
    }
  }
}

TEST_CASE("parameter groups with and without decay are updated each like a chunk of its own") {
  constexpr int64_t kCount = 40 * kCodeBlock;
  std::vector<ParamGroupRange> groups;
  for (int64_t begin = 0; begin < kCount; begin += 2 * kCodeBlock) {
    groups.push_back({begin, begin + 2 * kCodeBlock, begin / kCodeBlock % 4 == 0});
  }
  at::manual_seed(2);
  const Tensor start = at::randn({kCount}), grad = at::randn({kCount});
  CodedState at_once(start.clone()), one_by_one(start.clone());
  UpdateStep step = default_step(at_once.config, 1);
  step.weight_decay = 0.1;
  const CpuRule rule(at_once.config);
  rule.apply_param_groups(at_once.chunk(grad), step, groups);
  for (const ParamGroupRange& group : groups) {
    rule.apply(one_by_one.chunk(grad).narrow(group.begin, group.end - group.begin),
               group.decays ? step : step.without_decay());
  }
  CHECK(at::equal(at_once.master, one_by_one.master));
  for (size_t k = 0; k < 2; ++k) {
    CHECK(at::equal(at_once.codes[k], one_by_one.codes[k]));
    CHECK(at::equal(at_once.maxima[k], one_by_one.maxima[k]));
  }
}

TEST_CASE("the arrays of coded states, and a chunk without its maxima") {
  const CpuRule rule({.kind = Kind::kAdamW8bit});
  const auto arrays = rule.state_arrays();
  REQUIRE(arrays.size() == 4);
  CHECK(arrays[1].name == "exp_avg_sq");
  CHECK((arrays[1].dtype == torch::kByte));
  CHECK(arrays[1].entries(4097) == 4097);
  CHECK(arrays[3].name == "exp_avg_sq_absmax");
  CHECK((arrays[3].dtype == torch::kFloat));
  CHECK(arrays[3].entries(4097) == 17);
  CHECK(rule.alignment() == kCodeBlock);
  CodedState state(at::zeros({300}));
  UpdateRule::Chunk chunk = state.chunk(at::zeros({300}));
  chunk.maxima.pop_back();
  CHECK_THROWS_AS(rule.apply(chunk, default_step(state.config, 1)), InternalError);
  CHECK_THROWS_WITH_AS(make_update_rule(state.config, torch::kMeta),
                       "optimizer.type AdamW8bit has no update on meta", Error);
}

}  // namespace zeroth::optim::coded_adam_test
