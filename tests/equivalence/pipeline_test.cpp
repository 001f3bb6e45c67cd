// The stages of a pipeline train to what one rank trains to, under every schedule.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/support/temp_folder.h"

namespace zeroth::equivalence::pipeline_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;
using Schedule = configs::PipelineConfig::Schedule;

constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array<int64_t, 3> kAccumulations = {1, 3, 8};
constexpr std::array<configs::RecomputeConfig, 3> kRecomputes = {
    {{}, {.every_nth_block = 1}, {.number_checkpoints = 2}}};
constexpr std::array kModels = {"llama", "qwen3_tied"};
constexpr size_t kSchedules = 6;
constexpr int64_t kBlocks = 4;  // of these models

// Stages, schedule, ZeRO stage, place of states and parameters, precision, accumulation, recompute,
// data ranks, tensor, model.
constexpr std::array<size_t, 10> kValues = {
    2, kSchedules,    4, 3, kPrecisions.size(), kAccumulations.size(), kRecomputes.size(), 2,
    2, kModels.size()};

Row row_of(const Combination& values, const std::string& directory = "") {
  Row row;
  row.pipeline.stages = values[0] == 0 ? 2 : 4;
  row.pipeline.schedule = static_cast<Schedule>(values[1]);
  row.zero.stage = static_cast<int>(values[2]);
  const auto place = static_cast<OffloadDevice>(values[3]);
  offload(row, place, row.zero.stage == 3 ? place : OffloadDevice::kNone, directory);
  row.precision = kPrecisions[values[4]];
  row.accumulation = kAccumulations[values[5]];
  row.recompute = kRecomputes[values[6]];
  row.ranks = static_cast<int>(values[7]) + 1;
  row.tensor = static_cast<int>(values[8]) + 1;
  row.model = kModels[values[9]];
  return row;
}

// All but those with fewer blocks than virtual stages, with batches that ranks cannot share, and
// with more ranks than tell more.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(kValues);
  std::erase_if(all, [](const Combination& values) {
    const Row row = row_of(values);
    const bool has_chunks = row.pipeline.schedule == Schedule::kInterleaved1F1B ||
                            row.pipeline.schedule == Schedule::kZbV;
    return row.pipeline.stages * (has_chunks ? 2 : 1) > kBlocks ||
           kGlobalBatch % (row.accumulation * row.ranks) != 0 || mesh_shape_of(row).ranks() > 8;
  });
  return all;
}

}  // namespace

TEST_CASE("pipelines train to the losses of the reference") {
  const TempFolder directory;
  RowChecker checker;
  for (const Combination& row : chosen(all_combinations()))
    checker.check(row_of(row, directory.path()));
  MESSAGE(checker.worst());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("pipelines over a frozen base train adapters to their reference") {
  RowChecker checker;
  for (const Training training : {Training::kLora, Training::kQlora}) {
    for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbH1}) {
      Row row{.accumulation = 3, .training = training};
      row.pipeline = {.stages = 2, .schedule = schedule};
      row.zero.stage = schedule == Schedule::k1F1B ? 3 : 0;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("pipelines train with other optimizers, dropout, near ranks and packed rows") {
  RowChecker checker;
  const configs::PipelineConfig pipeline = {.stages = 2, .schedule = Schedule::kZbV};
  for (const Training training : {Training::kLamb, Training::kAdamW8bit, Training::kLion}) {
    Row row{.accumulation = 2, .pipeline = pipeline, .ranks = 2, .training = training};
    row.zero.stage = 1;
    checker.check(row);
  }
  Row near{.accumulation = 2, .pipeline = {.stages = 2}, .ranks = 4};
  near.zero.stage = 3;
  near.zero.hpz_partition_size = 2;
  checker.check(near);
  checker.check({.accumulation = 2, .pipeline = pipeline, .dropout = 0.1});
  for (const Samples samples : {Samples::kShort, Samples::kPacked})
    checker.check({.accumulation = 2, .pipeline = pipeline, .samples = samples});
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::pipeline_test
