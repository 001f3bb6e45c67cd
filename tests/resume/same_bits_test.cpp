// A run that is ended and goes on has the bits of the one that is not.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>

#include "tests/equivalence/pairwise.h"
#include "tests/resume/row.h"
#include "tests/support/temp_folder.h"

namespace zeroth::resume::same_bits_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;
using equivalence::Combination;

constexpr std::array kPlaces = {OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kNvme};
constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
// Stage, place, precision, accumulation, recompute, dropout, ranks.
constexpr std::array<size_t, 7> kValues = {4, 3, 3, 2, 2, 2, 3};

Row row_of(const Combination& values) {
  return {.stage = static_cast<int>(values[0]),
          .offload_device = kPlaces[values[1]],
          .precision = kPrecisions[values[2]],
          .accumulation = static_cast<int64_t>(values[3]) + 1,
          .recompute = values[4] == 1,
          .dropout = values[5] == 1 ? 0.1 : 0,
          .ranks = static_cast<int>(values[6]) + 1};
}

// States rest elsewhere only where they are sharded.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = equivalence::combinations(kValues);
  std::erase_if(all, [](const Combination& values) {
    return row_of(values).stage == 0 && row_of(values).offload_device != OffloadDevice::kNone;
  });
  return all;
}

}  // namespace

TEST_CASE("losses, samples, weights and states go on bit by bit") {
  const bool full = std::getenv("ZEROTH_TEST_FULL") != nullptr;
  const auto all = all_combinations();
  // Some whose layers are shared, or divided among stages, too.
  std::vector<Row> rows = {
      {.stage = 2, .precision = Precision::kBf16, .recompute = true, .ranks = 2, .tensor = 2},
      {.stage = 3, .offload_device = OffloadDevice::kNvme, .dropout = 0.1, .ranks = 1, .tensor = 4},
      {.stage = 0, .precision = Precision::kFp16, .accumulation = 2, .ranks = 1, .tensor = 2},
      {.stage = 3, .precision = Precision::kBf16, .accumulation = 2, .ranks = 2, .pipe = 2},
      {.stage = 1,
       .precision = Precision::kFp16,
       .accumulation = 3,
       .dropout = 0.1,
       .pipe = 2,
       .schedule = configs::PipelineConfig::Schedule::kZbV},
      {.stage = 3, .offload_device = OffloadDevice::kNvme, .ranks = 2, .model = "qwen2_moe"},
      {.stage = 1, .recompute = true, .ranks = 1, .tensor = 2, .model = "qwen2_moe"},
      {.stage = 2, .precision = Precision::kBf16, .ranks = 2, .model = "glm4"},
      {.stage = 3, .accumulation = 2, .ranks = 2, .pipe = 2, .model = "phi3"},
      {.stage = 3, .precision = Precision::kFp16, .ranks = 3, .model = "smollm3"}};
  for (const Combination& values : full ? all : equivalence::pairwise(all)) {
    rows.push_back(row_of(values));
  }
  int64_t skips_before_the_end = 0;
  for (const Row& row : rows) {
    CAPTURE(name_of(row));
    const TempFolder directory;
    const Seen whole = run(row, {.save = directory / "a"});
    const Seen rest =
        run(row, {.from = 3, .load = directory / "a/step-3", .save = directory / "b"});
    for (int64_t step = 3; step < 6; ++step) {
      const auto at = static_cast<size_t>(step);
      CHECK(rest.losses[at - 3] == whole.losses[at]);
      CHECK(rest.norms[at - 3] == whole.norms[at]);
      CHECK((rest.samples.at(step) == whole.samples.at(step)));
      CHECK(whole.samples.at(step).size() == static_cast<size_t>(kGlobalBatch));
    }
    const auto one = bytes_of(directory / "a/step-6"), other = bytes_of(directory / "b/step-6");
    CHECK(one.size() == static_cast<size_t>(row.ranks * row.tensor * row.pipe) + 1);
    CHECK((one == other));
    CHECK((bytes_of(directory / "a/step-3") != one));
    if (row.precision == Precision::kFp16) skips_before_the_end += whole.skipped[2];
  }
  CHECK(skips_before_the_end > 0);
}

}  // namespace zeroth::resume::same_bits_test
