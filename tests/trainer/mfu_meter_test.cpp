#include "trainer/report/flops_profile.h"

#include <doctest/doctest.h>

#include <cmath>

#include "model/spec.h"
#include "tests/support/ranks.h"

namespace zeroth::trainer::mfu_meter_test {
namespace {

model::ModelSpec small_spec() {
  model::ModelSpec spec;
  spec.vocab_size = 512;
  spec.hidden_size = 64;
  spec.intermediate_size = 128;
  spec.num_layers = 2;
  spec.num_heads = spec.num_kv_heads = 4;
  spec.head_dim = 16;
  return spec;
}

engine::StepStats stats_of(int64_t tokens, int64_t num_label_tokens) {
  engine::StepStats stats;
  stats.tokens = tokens;
  stats.num_label_tokens = num_label_tokens;
  return stats;
}

}  // namespace

TEST_CASE("the share is unknown until the machine was measured, then work over time") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const engine::StepStats stats = stats_of(1024, 1024);
    MfuMeter share(small_spec(), 32);
    CHECK(std::isnan(share.measure_step(stats, 1)));
    share.measure(torch::kBFloat16, *mesh);
    const double one = share.measure_step(stats, 1);
    CHECK(one > 0);
    CHECK(share.measure_step(stats_of(2048, 2048), 1) > 2 * one);
    CHECK(share.measure_step(stats, 0.5) == doctest::Approx(2 * one));
    // A core multiplies at more than 100 MFLOPS and at less than 10 TFLOPS.
    const double work = model::flops_per_token(small_spec(), 32) * 1024;
    CHECK(one < work / 2e8);
    CHECK(one > work / 2e13);
  });
}

TEST_CASE("short rows and untrained tokens count as what they are") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    MfuMeter share(small_spec(), 8);
    share.measure(torch::kFloat, *mesh);
    const auto at_one_second = [&](int64_t tokens, int64_t trained) {
      return share.measure_step(stats_of(tokens, trained), 1);
    };
    const double whole = at_one_second(64, 64);
    CHECK(whole * model::flops_per_token(small_spec(), 4) ==
          doctest::Approx(at_one_second(32, 32) * 2 * model::flops_per_token(small_spec(), 8)));
    const double head = 6.0 * 512 * 64;
    CHECK(at_one_second(64, 16) / whole ==
          doctest::Approx(1 - 0.75 * head / model::flops_per_token(small_spec(), 8)));
  });
}

TEST_CASE("a step that does more than was measured shows that the measurement was wrong") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    MfuMeter share(small_spec(), 8);
    share.measure(torch::kFloat, *mesh);
    const engine::StepStats stats = stats_of(1 << 20, 1 << 20);
    CHECK(std::isfinite(share.measure_step(stats, 1e9)));
    CHECK(std::isnan(share.measure_step(stats, 1e-9)));
    CHECK(std::isnan(share.measure_step(stats, 1e9)));
  });
}

}  // namespace zeroth::trainer::mfu_meter_test
