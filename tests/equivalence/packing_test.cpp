// Samples that share rows train to what they train to in rows of their own.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/support/all_products.h"

namespace zeroth::equivalence::packing_test {
namespace {

using configs::OffloadDevice;
using testing::all_products;

constexpr std::array kTensor = {1, 2, 4};
constexpr std::array<configs::RecomputeConfig, 3> kRecomputes = {
    {{}, {.every_nth_block = 1}, {.number_checkpoints = 2, .cpu_checkpointing = true}}};
constexpr std::array kDropouts = {0.0, 0.1};
// Where optimizer states and, in stage 3, parameters rest.
constexpr std::array kPlaces = {OffloadDevice::kNone, OffloadDevice::kCpu};
constexpr std::array kModels = {"llama", "qwen2", "qwen3_tied", "gpt2"};
// Stage, ranks, tensor, accumulation, recompute, dropout, place, model.
constexpr std::array<size_t, 8> kValues = {
    4, 2, kTensor.size(), 2, kRecomputes.size(), kDropouts.size(), kPlaces.size(), kModels.size()};

// With one of two masks and one product each, such that any two values meet all of these.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(kValues);
  for (Combination& values : all) {
    const size_t sum = std::accumulate(values.begin(), values.end(), size_t{0});
    values.push_back(sum % 2);
    values.push_back(sum / 2 % (all_products().size() + 1));
  }
  return all;
}

Row row_of(const Combination& values) {
  Row row;
  row.zero.stage = static_cast<int>(values[0]);
  row.ranks = static_cast<int>(values[1]) + 1;
  row.tensor = kTensor[values[2]];
  row.accumulation = static_cast<int64_t>(values[3]) + 1;
  row.recompute = kRecomputes[values[4]];
  row.dropout = kDropouts[values[5]];
  row.zero.offload_optimizer.device = kPlaces[values[6]];
  if (row.zero.stage == 3) row.zero.offload_param.device = kPlaces[values[6]];
  row.model = kModels[values[7]];
  row.samples = Samples::kPacked;
  row.masked = values[8] == 1;
  if (values[9] > 0) row.rounding.product = all_products()[values[9] - 1];
  return row;
}

}  // namespace

TEST_CASE("packed samples train to what they train to in rows of their own") {
  RowChecker checker;
  for (const Combination& row : chosen(all_combinations())) checker.check(row_of(row));
  MESSAGE(checker.worst());
}

TEST_CASE("packed samples that see each other have other losses and gradients") {
  RowChecker checker;
  for (const char* model : kModels) {
    CAPTURE(model);
    const Row row = {.model = model, .samples = Samples::kPacked, .steps = 1};
    const Split fault = {.samples = Samples::kPacked, .sees_neighbors = true};
    const double loss = checker.result(single(row)).losses.front();
    CHECK(std::abs(run_row(row, fault).losses.front() / loss - 1) > 1e-3);
    CHECK(largest_gap(first_gradients(row, fault), first_gradients(single(row))) > 1e-2);
  }
}

}  // namespace zeroth::equivalence::packing_test
