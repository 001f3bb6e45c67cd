// The table: every strategy in every precision trains to the reference's losses.
#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/support/all_products.h"

namespace zeroth::equivalence::strategies_test {
namespace {

using configs::Precision;
using testing::all_products;

constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array<configs::RecomputeConfig, 4> kRecomputes = {{
    {},
    {.every_nth_block = 1},
    {.every_nth_block = 2},
    {.number_checkpoints = 2},
}};
constexpr std::array kModels = {"llama", "qwen3_tied", "gpt2"};
// Stage, precision, accumulation, recompute, ranks, model, product.
std::array<size_t, 7> values() {
  return {
      4, kPrecisions.size(), 3, kRecomputes.size(), 4, kModels.size(), all_products().size() + 1};
}

Row row_of(const Combination& values) {
  Row row;
  row.zero.stage = static_cast<int>(values[0]);
  row.precision = kPrecisions[values[1]];
  row.accumulation = static_cast<int64_t>(values[2]) + 1;
  row.recompute = kRecomputes[values[3]];
  row.ranks = static_cast<int>(values[4]) + 1;
  row.model = kModels[values[5]];
  if (values[6] > 0) row.rounding.product = all_products()[values[6] - 1];
  return row;
}

// All but those that cannot share the global batch evenly.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(values());
  std::erase_if(all, [](const Combination& values) {
    const Row row = row_of(values);
    return kGlobalBatch % (row.accumulation * row.ranks) != 0;
  });
  return all;
}

// All with one or two micro-batches, each by one product, such that any two values meet each.
bool is_of_full(const Combination& values) {
  const size_t sum = std::accumulate(values.begin(), values.end() - 1, size_t{0});
  return row_of(values).accumulation < 3 && values[6] == sum % (all_products().size() + 1);
}

}  // namespace

TEST_CASE("every strategy trains to the losses of the reference") {
  RowChecker checker;
  for (const Combination& row : chosen(all_combinations(), is_of_full)) {
    checker.check(row_of(row));
  }
  MESSAGE(checker.worst());
}

TEST_CASE("pad_token_id: rows train to the reference's losses with a padding token in the text") {
  RowChecker checker;
  for (const char* model : {"llama_pad", "qwen3_pad_tied"}) {
    for (const Precision precision : kPrecisions) {
      for (const int stage : {0, 1, 2, 3}) {
        Row row = {.precision = precision, .accumulation = 1 + stage % 2, .model = model};
        row.zero.stage = stage;
        row.ranks = stage == 0 ? 1 : 2;
        row.tensor = stage == 1 ? 2 : stage == 2 ? 4 : 1;
        if (stage == 3) row.recompute.every_nth_block = 1;
        checker.check(row);
      }
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("a rate that changes is the one that DeepSpeed's optimizer sees at each update") {
  RowChecker checker;
  for (const char* model : kModels) checker.check({.model = model, .cosine = true});
  checker.check({.zero = {.stage = 3, .param_persistence_threshold_elements = 0},
                 .accumulation = 2,
                 .ranks = 2,
                 .cosine = true});
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::strategies_test
