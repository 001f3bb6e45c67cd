// Adapters over a frozen base: peft's losses, wherever base, states and parameters rest.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/support/temp_folder.h"

namespace zeroth::equivalence::lora_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;

constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array kModels = {"llama", "qwen3_tied", "gpt2"};
// Stage, place of the optimizer's states, place of parameters, precision, accumulation, recompute,
// ranks, tensor-parallel ranks, model.
constexpr std::array<size_t, 9> kValues = {4, 3, 3, kPrecisions.size(), 2, 2, 3, 2, kModels.size()};
// The same without tensor-parallel ranks and models, with and without double quantization.
constexpr std::array<size_t, 8> kQuantizedValues = {4, 3, 3, kPrecisions.size(), 2, 2, 3, 2};

// Reads the values that both have.
Row row_of(const Combination& values, const TempFolder& directory,
           Training training = Training::kLora) {
  Row row = {.training = training};
  row.zero.stage = static_cast<int>(values[0]);
  offload(row, static_cast<OffloadDevice>(values[1]), static_cast<OffloadDevice>(values[2]),
          directory.path());
  row.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::UpdateDevice::kCpu;
  row.precision = kPrecisions[values[3]];
  row.accumulation = static_cast<int64_t>(values[4]) + 1;
  row.recompute.every_nth_block = static_cast<int64_t>(values[5]);
  row.ranks = static_cast<int>(values[6]) + 1;
  return row;
}

Training quantized(size_t is_double) {
  return is_double != 0 ? Training::kQloraDouble : Training::kQlora;
}

// All but parameters that rest elsewhere below stage 3.
template <size_t kSize>
std::vector<Combination> all_combinations(const std::array<size_t, kSize>& values_of) {
  std::vector<Combination> all = combinations(values_of);
  std::erase_if(all, [](const Combination& values) { return values[2] != 0 && values[0] != 3; });
  return all;
}

}  // namespace

TEST_CASE("adapters train to peft's losses in every strategy, to the bit of those that stay") {
  const TempFolder directory;
  RowChecker checker;
  for (const Combination& values : covering(all_combinations(kValues), 2)) {
    Row row = row_of(values, directory);
    row.tensor = static_cast<int>(values[7]) + 1;
    row.model = kModels[values[8]];
    checker.check(row);
  }
  MESSAGE(checker.worst());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("adapters over NF4 train to the losses of peft with bitsandbytes in every strategy") {
  const TempFolder directory;
  RowChecker checker;
  size_t index = 0;
  for (const Combination& values : covering(all_combinations(kQuantizedValues), 2)) {
    Row row = row_of(values, directory, quantized(values[7]));
    row.model = index++ % 2 == 0 ? "llama" : "qwen3_tied";
    checker.check(row);
  }
  MESSAGE(checker.worst());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("adapters over NF4 train alike where ranks share layers") {
  const TempFolder directory;
  RowChecker checker;
  for (const int stage : {0, 3}) {
    for (const size_t is_double : {0, 1}) {
      Row row = {.model = "llama_wide", .training = quantized(is_double)};
      row.tensor = 2;
      row.zero.stage = stage;
      checker.check(row);
      row.ranks = 2;
      row.precision = stage == 0 ? Precision::kFp32 : Precision::kBf16;
      row.recompute.every_nth_block = 1;
      row.zero.offload_param.nvme_path = directory.path();
      if (stage == 3) row.zero.offload_param.device = OffloadDevice::kNvme;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("adapters drop the same elements, however ranks split samples and layers") {
  RowChecker checker;
  for (const char* model : {"llama", "gpt2"}) {
    Row row = {.model = model, .training = Training::kLora, .dropout = 0.1};
    row.ranks = 2;
    row.zero.stage = 2;
    checker.check(row);
    row.zero.stage = 3;
    row.recompute.every_nth_block = 1;
    checker.check(row);
    row.tensor = 2;
    row.accumulation = 2;
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

TEST_CASE("a saved adapter holds its factors alone") {
  RowChecker checker;
  Row row = {.ranks = 2, .training = Training::kLora};
  row.zero.stage = 3;
  const RowResult& own = checker.result(row);
  CHECK(own.parameters.size() > 0);
  for (const auto& [name, value] : own.parameters) {
    CAPTURE(name);
    CHECK((name.ends_with(".lora_A") || name.ends_with(".lora_B")));
  }
}

}  // namespace zeroth::equivalence::lora_test
