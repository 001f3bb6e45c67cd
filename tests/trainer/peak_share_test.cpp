#include "trainer/peak_share.h"

#include <doctest/doctest.h>

#include <cmath>

#include "model/flops.h"
#include "tests/support/ranks.h"

namespace zeroth::trainer {
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

}  // namespace

TEST_CASE("the share is unknown until the machine was measured, then work over time") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    PeakShare share(small_spec(), 32);
    CHECK(std::isnan(share.of(1000, 1)));
    share.measure(configs::Precision::kBf16, *mesh);
    const double one = share.of(1000, 1);
    CHECK(one > 0);
    CHECK(share.of(2000, 1) == doctest::Approx(2 * one));
    CHECK(share.of(1000, 0.5) == doctest::Approx(2 * one));
    // A core multiplies at more than 100 MFLOPS and at less than 10 TFLOPS.
    const double work = model::flops_per_token(small_spec(), 32) * 1000;
    CHECK(one < work / 2e8);
    CHECK(one > work / 2e13);
  });
}

}  // namespace zeroth::trainer
