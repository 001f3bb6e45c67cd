// A run goes on where other ranks, stages, places and precisions are.
#include <doctest/doctest.h>

#include <cmath>

#include "checkpoint/reader.h"
#include "tests/checkpoint/read_whole.h"
#include "tests/resume/row.h"
#include "tests/support/temp_folder.h"

namespace zeroth::resume::layouts_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;
using Schedule = configs::PipelineConfig::Schedule;

constexpr double kFp32 = 2e-5, kBf16 = 2.5e-3;

double worst(const Seen& rest, const Seen& whole) {
  double worst = 0;
  for (size_t i = 0; i < rest.losses.size(); ++i) {
    worst = std::max(worst, std::abs(rest.losses[i] - whole.losses[i + 3]) / whole.losses[i + 3]);
  }
  return worst;
}

std::multiset<int64_t> all_samples(const Seen& first, int64_t until, const Seen& rest = {}) {
  std::multiset<int64_t> all;
  for (const auto& [step, samples] : first.samples) {
    if (step < until) all.insert(samples.begin(), samples.end());
  }
  for (const auto& [step, samples] : rest.samples) all.insert(samples.begin(), samples.end());
  return all;
}

// Every state, whole, by its name.
std::map<std::string, std::vector<std::byte>> states_of(const std::filesystem::path& checkpoint) {
  auto reader = checkpoint::CheckpointReader::open(checkpoint);
  std::map<std::string, std::vector<std::byte>> states;
  for (const checkpoint::StoredState& one : reader.states()) {
    states[one.state + " of " + one.tensor] = checkpoint::read_whole(reader, one.tensor, one.state);
  }
  return states;
}

}  // namespace

TEST_CASE("a run goes on with other ranks, in another stage, from another place") {
  const std::vector<std::pair<Row, Row>> ways = {
      {{.stage = 2, .ranks = 4}, {.stage = 2, .ranks = 2}},
      {{.stage = 3, .ranks = 2}, {.stage = 3, .ranks = 4}},
      {{.stage = 3, .ranks = 4}, {.stage = 3, .ranks = 3}},
      {{.stage = 1, .ranks = 3}, {.stage = 1, .ranks = 1}},
      {{.stage = 3, .ranks = 2}, {.stage = 1, .ranks = 2}},
      {{.stage = 1, .ranks = 2}, {.stage = 3, .ranks = 2}},
      {{.stage = 0, .ranks = 2}, {.stage = 2, .ranks = 2}},
      {{.stage = 2, .ranks = 2}, {.stage = 2, .offload_device = OffloadDevice::kNvme, .ranks = 2}},
      {{.stage = 3, .offload_device = OffloadDevice::kNvme, .ranks = 2},
       {.stage = 3, .offload_device = OffloadDevice::kCpu, .ranks = 2}},
      {{.stage = 3, .ranks = 2}, {.stage = 3, .ranks = 5}},  // 24 samples, not 25
      {{.stage = 0, .ranks = 1}, {.stage = 2, .accumulation = 2, .ranks = 5}},
      {{.stage = 2, .ranks = 2}, {.stage = 2, .ranks = 1, .tensor = 2}},
      {{.stage = 1, .ranks = 1, .tensor = 4}, {.stage = 3, .ranks = 3, .tensor = 2}},
      {{.stage = 3, .ranks = 2, .tensor = 2}, {.stage = 0, .ranks = 1}},
      {{.stage = 3, .ranks = 3, .tensor = 2},
       {.stage = 2, .offload_device = OffloadDevice::kNvme, .ranks = 1, .tensor = 4}},
      {{.stage = 0, .dropout = 0.1, .ranks = 2, .tensor = 2},
       {.stage = 1, .dropout = 0.1, .ranks = 3}},
      // Between meshes of pipe x data x tensor.
      {{.stage = 1, .ranks = 2, .tensor = 2, .pipe = 2}, {.stage = 0}},
      {{.stage = 1, .ranks = 2, .tensor = 2, .pipe = 2}, {.stage = 0, .tensor = 2}},
      {{.stage = 3, .ranks = 2, .tensor = 2, .pipe = 2}, {.stage = 2, .ranks = 2, .tensor = 2}},
      {{.stage = 2, .accumulation = 2, .ranks = 2, .tensor = 2, .pipe = 2},
       {.stage = 2, .accumulation = 3, .pipe = 2, .schedule = Schedule::kZbV}},
      {{.stage = 0}, {.stage = 3, .accumulation = 2, .ranks = 2, .tensor = 2, .pipe = 2}},
      {{.stage = 1, .tensor = 2}, {.stage = 1, .ranks = 2, .tensor = 2, .pipe = 2}},
      {{.stage = 2, .accumulation = 4, .pipe = 2, .schedule = Schedule::kInterleaved1F1B},
       {.stage = 3,
        .offload_device = OffloadDevice::kNvme,
        .accumulation = 2,
        .pipe = 4,
        .schedule = Schedule::kBreadthFirst}},
      {{.stage = 0, .accumulation = 2, .dropout = 0.1, .pipe = 2, .schedule = Schedule::kZbH1},
       {.stage = 2, .dropout = 0.1, .ranks = 2}},
  };
  double largest = 0;
  for (const auto& [before, after] : ways) {
    CAPTURE(name_of(before));
    CAPTURE(name_of(after));
    const TempFolder directory;
    const Seen whole = run(before, {.save = directory / "a"});
    const Seen rest = run(after, {.from = 3, .load = directory / "a/step-3"});
    CHECK(worst(rest, whole) <= kFp32);
    largest = std::max(largest, worst(rest, whole));
    CHECK((all_samples(whole, 3, rest) == all_samples(whole, 6)));
  }
  MESSAGE("losses differ by at most " << largest);
}

TEST_CASE("a run in bf16 goes on from one in fp32, and back, from the same masters and moments") {
  const TempFolder directory;
  const Row fp32 = {.stage = 2, .ranks = 2};
  const Row bf16 = {.stage = 3, .precision = Precision::kBf16, .ranks = 2};
  const Seen whole = run(fp32, {.save = directory / "a"});
  run(bf16, {.from = 3, .to = 3, .load = directory / "a/step-3", .save = directory / "again"});
  CHECK((states_of(directory / "a/step-3") == states_of(directory / "again/step-3")));
  const Seen other =
      run(bf16, {.from = 3, .load = directory / "a/step-3", .save = directory / "b", .save_at = 4});
  CHECK(worst(other, whole) <= kBf16);
  const Seen back = run(fp32, {.from = 4, .load = directory / "b/step-4", .save = directory / "c"});
  for (size_t i = 0; i < back.losses.size(); ++i) {
    CHECK(back.losses[i] == doctest::Approx(whole.losses[i + 4]).epsilon(kBf16));
  }
}

}  // namespace zeroth::resume::layouts_test
