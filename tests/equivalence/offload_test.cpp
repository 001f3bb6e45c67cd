// Where optimizer states and parameters rest changes no bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/support/temp_folder.h"

namespace zeroth::equivalence::offload_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;

constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array kModels = {"llama", "qwen3_tied"};
// Stage, place of the optimizer's states, place of parameters, precision, accumulation, clipping,
// recompute, ranks, model.
constexpr std::array<size_t, 9> kValues = {4, 3, 3, kPrecisions.size(), 2, 2, 2, 3, kModels.size()};

Row row_of(const Combination& values, const TempFolder& directory) {
  Row row;
  row.zero.stage = static_cast<int>(values[0]);
  offload(row, static_cast<OffloadDevice>(values[1]), static_cast<OffloadDevice>(values[2]),
          directory.path());
  row.zero.offload_optimizer.step = Step::kCpu;
  row.precision = kPrecisions[values[3]];
  row.accumulation = static_cast<int64_t>(values[4]) + 1;
  row.clipping = values[5] == 0 ? 1 : 0;
  row.recompute.every_nth_block = static_cast<int64_t>(values[6]);
  row.ranks = static_cast<int>(values[7]) + 1;
  row.model = kModels[values[8]];
  return row;
}

// All but parameters that rest elsewhere below stage 3, and what rests as in the other tests.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(kValues);
  std::erase_if(all, [](const Combination& values) {
    return (values[2] != 0 && values[0] != 3) || (values[1] == 0 && values[2] == 0);
  });
  return all;
}

Row nvme_row(const TempFolder& directory, int stage, int ranks) {
  Combination values(kValues.size(), 0);
  values[0] = static_cast<size_t>(stage);
  values[1] = values[2] = static_cast<size_t>(OffloadDevice::kNvme);
  if (stage < 3) values[2] = 0;
  values[7] = static_cast<size_t>(ranks - 1);
  return row_of(values, directory);
}

}  // namespace

TEST_CASE("states and parameters on the host or in files train to the bits of those that stay") {
  const TempFolder directory;
  const auto in_full = [](const Combination&) { return true; };
  RowChecker checker;
  for (const Combination& row : chosen(all_combinations(), in_full)) {
    checker.check(row_of(row, directory));
  }
  MESSAGE(checker.worst());
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("tiles, buffers, pipelines, ratio and what stays in memory change no bit") {
  const TempFolder directory;
  RowChecker checker;
  for (const int ranks : {1, 2}) {
    for (const int stage : {2, 3}) {
      Row row = nvme_row(directory, stage, ranks);
      row.precision = Precision::kBf16;
      configs::OffloadOptimizerConfig& optimizer = row.zero.offload_optimizer;
      optimizer.buffer_count = 3;
      row.zero.sub_group_size_elements = 4096;
      checker.check(row);
      optimizer.pipeline_read = false;
      optimizer.buffer_count = 2;
      row.zero.offload_param.buffer_count = 2;
      checker.check(row);
      optimizer.pipeline_write = false;
      optimizer.buffer_count = 1;
      checker.check(row);
      optimizer.ratio = 0.5;
      row.zero.offload_param.max_in_cpu_elements = 5'000;
      checker.check(row);
      optimizer.ratio = 0;
      row.zero.param_persistence_threshold_elements = 1'000;
      checker.check(row);
    }
  }
}

TEST_CASE("a GPU's step over states that rest elsewhere has the bits of states that stay") {
  const TempFolder directory;
  RowChecker checker;
  for (const OffloadDevice place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    for (const int stage : {0, 2, 3}) {
      for (const int ranks : {1, 2}) {
        Row row = nvme_row(directory, stage, ranks);
        row.precision = stage == 2 ? Precision::kFp32 : Precision::kBf16;
        row.accumulation = ranks;
        row.zero.sub_group_size_elements = 4096;
        row.zero.offload_optimizer.device = place;
        row.zero.offload_optimizer.step = Step::kGpu;
        if (stage == 3) row.zero.offload_param.device = place;
        checker.check(row);
      }
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("a GPU's step beside the next forward pass has the bits of one before it") {
  RowChecker checker;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2}) {
      Row row{.ranks = ranks};
      row.precision = ranks == 1 ? Precision::kBf16 : Precision::kFp32;
      row.accumulation = stage % 2 + 1;
      row.zero.stage = stage;
      row.zero.overlap_step = true;
      checker.check(row);
      Row partly = row;
      partly.zero.offload_optimizer = {
          .device = OffloadDevice::kCpu, .ratio = 0.5, .step = Step::kGpu};
      checker.check(partly);
      row.training = Training::kLamb;
      row.precision = Precision::kFp32;  // that of Lamb's reference
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("a GPU's step of Lamb, or its host's, takes the norms of whole parameters") {
  const TempFolder directory;
  RowChecker checker;
  for (const Step step : {Step::kGpu, Step::kCpu}) {
    for (const OffloadDevice place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
      for (const int stage : {0, 2, 3}) {
        Row row = nvme_row(directory, stage, 2);
        row.training = Training::kLamb;
        row.zero.sub_group_size_elements = 4096;
        row.zero.offload_optimizer.device = place;
        row.zero.offload_optimizer.step = step;
        checker.check(row);
      }
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE(
    "moments of 8 bits have the same bits wherever they rest, by a GPU's step or its host's") {
  const TempFolder directory;
  RowChecker checker;
  for (const Step step : {Step::kGpu, Step::kCpu}) {
    for (const OffloadDevice place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
      for (const int stage : {0, 1, 2, 3}) {
        Row row = nvme_row(directory, stage, stage == 0 ? 1 : 2);
        row.training = Training::kAdamW8bit;
        row.zero.sub_group_size_elements = 4096;
        row.zero.offload_optimizer.device = place;
        row.zero.offload_optimizer.step = step;
        row.zero.offload_optimizer.ratio = stage == 1 ? 0.5 : 1;
        checker.check(row);
      }
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE(
    "ranges that do not decay have the same bits wherever masters rest, in tiles of any size") {
  const TempFolder directory;
  RowChecker checker;
  for (const OffloadDevice place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    for (const int stage : {0, 1, 2, 3}) {
      Row row = nvme_row(directory, stage, stage == 0 ? 1 : 2);
      row.training = Training::kNoDecay;
      row.model = "gpt2";
      row.zero.offload_optimizer.device = place;
      row.zero.sub_group_size_elements = stage == 1 ? 64 : 1000;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("every optimizer's states rest in files") {
  const TempFolder directory;
  RowChecker checker;
  for (const Training training :
       {Training::kAdamL2, Training::kLion, Training::kSgd, Training::kAdagrad, Training::kLamb,
        Training::kNoDecay, Training::kOneCycle, Training::kAdamW8bit}) {
    Row row = nvme_row(directory, 3, 2);
    row.training = training;
    checker.check(row);
  }
}

// Rounded stochastically they leave the reference; how far is a matter of chance, but the same one
// on every run.
TEST_CASE("states in bf16 train near the reference, to the same bits wherever they rest") {
  const TempFolder directory;
  const nlohmann::json reference = load_fixture("llama").at("bf16").at("losses");
  for (const Training training : {Training::kBf16Masters, Training::kBf16States}) {
    for (const int ranks : {1, 2}) {
      Row row = nvme_row(directory, 3, ranks);
      row.precision = Precision::kBf16;
      row.training = training;
      RowChecker checker;
      const RowResult& in_files = checker.result(row);
      CHECK(in_files.losses == checker.result(plain(row)).losses);
      double largest = 0;
      for (size_t i = 0; i < reference.size(); ++i) {
        largest = std::max(largest, std::abs(in_files.losses[i] - reference[i].get<double>()));
      }
      CAPTURE(name_of(row));
      MESSAGE(largest);
      CHECK(largest < 5e-3);
      CHECK(largest > 0);
    }
  }
}

}  // namespace zeroth::equivalence::offload_test
