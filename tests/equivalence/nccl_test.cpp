// Ranks that have a GPU each, over NCCL. Where GPUs and NCCL are simulated, streams are late by a
// seed: whatever the seed, a row has the same bits.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/equivalence/run_row.h"
#include "tests/support/ranks.h"

namespace zeroth::equivalence::nccl_test {
namespace {

using configs::OffloadDevice;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;

// A few; with ZEROTH_TEST_FULL a hundred. A GPU has one pace, its own.
int seeds() {
  if (dlsym(RTLD_DEFAULT, "zeroth_simulated_seed") == nullptr) return 1;
  return std::getenv("ZEROTH_TEST_FULL") == nullptr ? 8 : 100;
}

RowResult run_at_pace(const Row& row, int seed) {
  void* const reseed = dlsym(RTLD_DEFAULT, "zeroth_simulated_seed");
  if (reseed != nullptr) reinterpret_cast<void (*)(uint64_t)>(reseed)(static_cast<uint64_t>(seed));
  return run_row(row, testing::Transport::kNccl);
}

// `ranks` GPUs in four ways: each with other samples, updated before the next forward pass and
// beside it, pairs that share layers, and with what rests on the host.
std::vector<Row> rows_of(int ranks) {
  std::vector<Row> rows;
  for (const int stage : {0, 1, 2, 3}) {
    Row row{.ranks = ranks, .steps = 3};
    row.zero.stage = stage;
    rows.push_back(row);
    row.zero.overlap_step = true;
    rows.push_back(row);
    if (stage == 3 && ranks == 4) {
      row.zero.hpz_partition_size = 2;
      rows.push_back(row);
      row.zero.hpz_partition_size = 1;
    }
    row.zero.overlap_step = false;
    row.ranks = ranks / 2;
    row.tensor = 2;
    rows.push_back(row);
    row.ranks = ranks;
    row.tensor = 1;
    row.zero.sub_group_size_elements = 4096;
    row.zero.offload_optimizer.device = OffloadDevice::kCpu;
    row.zero.offload_optimizer.step = stage % 2 == 0 ? Step::kGpu : Step::kCpu;
    if (stage == 3) row.zero.offload_param.device = OffloadDevice::kCpu;
    rows.push_back(row);
  }
  return rows;
}

void check_same(const RowResult& a, const RowResult& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.grad_norms == b.grad_norms);
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (const auto& [name, value] : a.parameters) {
    CAPTURE(name);
    CHECK(at::equal(value, b.parameters.at(name)));
  }
}

// Two GPUs add as two ranks of the host do; four in another order.
void check_near(const RowResult& a, const RowResult& b) {
  for (size_t step = 0; step < b.losses.size(); ++step) {
    CHECK(std::abs(a.losses[step] - b.losses[step]) <= 1e-6);
    CHECK(std::abs(a.grad_norms[step] / b.grad_norms[step] - 1) <= 1e-6);
  }
}

}  // namespace

TEST_CASE("over NCCL every row has the same bits at every pace, near those over host memory") {
  for (const int ranks : {2, 4}) {
    if (testing::gpu_count_of_tests() < ranks) {
      MESSAGE("skipped: " << ranks << " ranks need a GPU each, and there are "
                          << testing::gpu_count_of_tests());
      continue;
    }
    for (const Row& row : rows_of(ranks)) {
      CAPTURE(name_of(row));
      const RowResult first = run_at_pace(row, 0);
      CHECK(first.ranks_agree);
      CHECK(first.masters_rounded);
      CHECK(first.only_shards);
      check_near(first, run_row(row));
      for (int seed = 1; seed < seeds(); ++seed) {
        CAPTURE(seed);
        check_same(run_at_pace(row, seed), first);
      }
    }
  }
}

}  // namespace zeroth::equivalence::nccl_test
