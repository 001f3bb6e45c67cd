#include "optim/squared_norm.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "optim/cpu/cpu_kernels.h"

namespace zeroth::optim::squared_norm_test {
namespace {

using kernel::kNormChunk;
using kernel::kNormColumns;
using kernel::kNormRows;
using kernel::kNormWarp;

std::vector<float> values_of(const torch::Tensor& x) {
  const torch::Tensor wide = x.to(torch::kFloat).contiguous();
  const auto* const data = wide.const_data_ptr<float>();
  return {data, data + wide.numel()};
}

// Element by element.
double plain_sum_of_piece(const float* from, int64_t count) {
  std::vector<double> columns(kNormColumns);
  for (int64_t column = 0; column < kNormColumns; ++column) {
    for (int64_t rows = column; rows < count; rows += kNormRows * kNormColumns) {
      float some = 0;
      for (int64_t row = 0; row < kNormRows && rows + row * kNormColumns < count; ++row) {
        const float square = from[rows + row * kNormColumns] * from[rows + row * kNormColumns];
        some += square;
      }
      columns[static_cast<size_t>(column)] += static_cast<double>(some);
    }
  }
  while (columns.size() > kNormColumns / kernel::kNormPerThread) {
    for (size_t i = 0; i < columns.size() / 2; ++i)
      columns[i] = columns[2 * i] + columns[2 * i + 1];
    columns.resize(columns.size() / 2);
  }
  double sum = 0;
  for (size_t warp = 0; warp < columns.size(); warp += kNormWarp) {
    sum += kernel::sum_by_halves(columns.data() + warp);
  }
  return sum;
}

double plain_sum(const std::vector<float>& values) {
  std::vector<double> lanes(kNormWarp);
  const auto count = static_cast<int64_t>(values.size());
  for (int64_t piece = 0; piece * kNormChunk < count; ++piece) {
    lanes[static_cast<size_t>(piece % kNormWarp)] += plain_sum_of_piece(
        values.data() + piece * kNormChunk, std::min(kNormChunk, count - piece * kNormChunk));
  }
  return kernel::sum_by_halves(lanes.data());
}

}  // namespace

TEST_CASE("the norm of a large unit is exact to fp32") {
  // Summed in fp32 lanes this one is off by 2e-3.
  const torch::Tensor large = torch::full({(1 << 24) + 3}, 1e-3f);
  large.narrow(0, 0, 1 << 23).fill_(3e-3f);
  const double expected = (1 << 23) * 9e-6 + ((1 << 23) + 3) * 1e-6;
  CHECK(squared_norms({large}, torch::kCPU).sum().item<double>() ==
        doctest::Approx(expected).epsilon(1e-6));
}

TEST_CASE("the norm of several tensors is that of all, empty and 16-bit ones among them") {
  CHECK(squared_norms({}, torch::kCPU).sum().item<double>() == 0);
  const torch::Tensor narrow = torch::full({5}, 3.0, torch::kBFloat16);
  CHECK(squared_norms({torch::full({3}, 2.0f), torch::zeros({0}), narrow}, torch::kCPU)
            .sum()
            .item<double>() == doctest::Approx(57));
}

TEST_CASE("the norm has the same bits at every instruction set, as written down in cpu_kernels.h") {
  torch::manual_seed(4);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    for (const int64_t numel : {1, 31, 2048, 2050, 16'384, 65'536, 65'537 + 2048 * 9}) {
      const torch::Tensor x = torch::randn({numel + 1}).to(dtype).narrow(0, 1, numel);
      const std::vector<float> values = values_of(x);
      CHECK(squared_norms({x}, torch::kCPU)[0].item<double>() == plain_sum(values));
    }
  }
}

TEST_CASE("what is not finite reaches the norm") {
  for (const float value : {INFINITY, -INFINITY, NAN}) {
    torch::Tensor x = torch::ones({70'000});
    x[69'999] = value;
    const double norm = squared_norms({x}, torch::kCPU).sum().item<double>();
    CHECK((std::isnan(value) ? std::isnan(norm) : norm == INFINITY));
  }
}

}  // namespace zeroth::optim::squared_norm_test
