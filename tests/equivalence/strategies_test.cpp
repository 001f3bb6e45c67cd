// The table: every strategy in every precision trains to the reference's losses.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"

namespace zeroth::equivalence {
namespace {

using configs::Precision;

constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array<configs::RecomputeConfig, 4> kRecomputes = {{
    {},
    {.every_nth_block = 1},
    {.every_nth_block = 2},
    {.number_checkpoints = 2},
}};
constexpr std::array kModels = {"llama", "qwen3_tied", "gpt2"};
// Stage, precision, accumulation, recompute, ranks, model.
constexpr std::array<size_t, 6> kValues = {4, kPrecisions.size(), 3, kRecomputes.size(),
                                           4, kModels.size()};

Row row_of(const Combination& values) {
  Row row;
  row.zero.stage = static_cast<int>(values[0]);
  row.precision = kPrecisions[values[1]];
  row.accumulation = static_cast<int64_t>(values[2]) + 1;
  row.recompute = kRecomputes[values[3]];
  row.ranks = static_cast<int>(values[4]) + 1;
  row.model = kModels[values[5]];
  return row;
}

// All but those that cannot share the global batch evenly.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(kValues);
  std::erase_if(all, [](const Combination& values) {
    const Row row = row_of(values);
    return kGlobalBatch % (row.accumulation * row.ranks) != 0;
  });
  return all;
}

}  // namespace

TEST_CASE("every strategy trains to the losses of the reference") {
  std::vector<Combination> rows = pairwise(all_combinations());
  if (std::getenv("ZEROTH_TEST_FULL") != nullptr) {
    for (const Combination& row : all_combinations()) {
      if (row_of(row).accumulation < 3) rows.push_back(row);
    }
  }
  RowChecker checker;
  for (const Combination& row : rows) checker.check(row_of(row));
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

}  // namespace zeroth::equivalence
