// What a thread of the GPU's log-sum-exp does, on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#define ZEROTH_INLINE inline
namespace zeroth::model::gpu {
namespace {

float exponential(float x) {
  return std::exp(x);
}

}  // namespace
}  // namespace zeroth::model::gpu
#include "model/kernels/gpu/exponential_sum.h"

namespace zeroth::model::gpu::exponential_sum_test {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Taken up by `threads` that each see every so many-th element, and then put together.
float log_of(const std::vector<float>& values, size_t threads) {
  std::vector<ExponentialSum> own(threads);
  for (size_t i = 0; i < values.size(); ++i) own[i % threads].add(values[i]);
  ExponentialSum all;
  for (const ExponentialSum& thread : own) all.add(thread);
  return all.log();
}

}  // namespace

TEST_CASE("a masked logit that comes first makes no NaN of its row") {
  const float expected = std::log(std::exp(1.0F) + std::exp(3.0F));
  for (const size_t threads : {1, 2, 3, 8}) {
    CHECK(log_of({kMasked, 1, kMasked, 3}, threads) == doctest::Approx(expected));
    CHECK(log_of({1, kMasked, 3}, threads) == doctest::Approx(expected));
    CHECK(log_of({kMasked, kMasked, kMasked}, threads) == kMasked);
  }
}

TEST_CASE("large logits do not overflow, and what is not a number stays visible") {
  CHECK(log_of({1000, 1000}, 2) == doctest::Approx(1000 + std::log(2.0F)));
  CHECK(std::isnan(log_of({1, std::nanf(""), 2}, 2)));
  CHECK_FALSE(std::isfinite(log_of({1, INFINITY, 2}, 2)));
}

TEST_CASE("what is not a number reaches its row through a thread that has masked logits only") {
  ExponentialSum masked, not_a_number, usual;
  masked.add(kMasked);
  not_a_number.add(std::nanf(""));
  usual.add(1);
  masked.add(not_a_number);
  usual.add(masked);
  CHECK(std::isnan(usual.log()));
}

}  // namespace zeroth::model::gpu::exponential_sum_test
