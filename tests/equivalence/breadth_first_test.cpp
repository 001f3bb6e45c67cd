// Breadth-first steps train to the reference's losses, most of them to the bits of others.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/support/temp_folder.h"

namespace zeroth::equivalence::breadth_first_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;

constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array<int64_t, 3> kAccumulations = {1, 3, 8};
constexpr std::array<configs::RecomputeConfig, 3> kRecomputes = {
    {{}, {.every_nth_block = 1}, {.number_checkpoints = 2}}};
constexpr std::array kModels = {"llama", "qwen3_tied"};
// Stage, place of the optimizer's states, place of parameters, precision, accumulation, recompute,
// ranks, tensor, model.
constexpr std::array<size_t, 9> kValues = {
    4, 3, 3, kPrecisions.size(), kAccumulations.size(), kRecomputes.size(), 2, 2, kModels.size()};

Row row_of(const Combination& values, const TempFolder& directory) {
  Row row;
  row.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
  row.zero.stage = static_cast<int>(values[0]);
  offload(row, static_cast<OffloadDevice>(values[1]), static_cast<OffloadDevice>(values[2]),
          directory.path());
  row.precision = kPrecisions[values[3]];
  row.accumulation = kAccumulations[values[4]];
  row.recompute = kRecomputes[values[5]];
  row.ranks = static_cast<int>(values[6]) + 1;
  row.tensor = static_cast<int>(values[7]) + 1;
  row.model = kModels[values[8]];
  return row;
}

// All but parameters that rest elsewhere below stage 3, and batches that ranks cannot share.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(kValues);
  std::erase_if(all, [](const Combination& values) {
    return (values[2] != 0 && values[0] != 3) ||
           kGlobalBatch % (kAccumulations[values[4]] * static_cast<int64_t>(values[6] + 1)) != 0;
  });
  return all;
}

}  // namespace

TEST_CASE("breadth-first steps train to the losses of the reference") {
  const TempFolder directory;
  RowChecker checker;
  for (const Combination& row : chosen(all_combinations())) {
    checker.check(row_of(row, directory));
  }
  MESSAGE(checker.worst());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("breadth-first steps over a frozen base train adapters to their reference") {
  RowChecker checker;
  for (const int stage : {0, 3}) {
    Row row{.accumulation = 3, .training = Training::kLora};
    row.pipeline.schedule = configs::PipelineConfig::Schedule::kBreadthFirst;
    row.zero.stage = stage;
    row.ranks = stage == 0 ? 1 : 2;
    row.recompute.every_nth_block = stage == 0 ? 0 : 1;
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::breadth_first_test
