// Where parameters rest and how far ahead they are gathered changes no bit.
#include <doctest/doctest.h>

#include <regex>
#include <vector>

#include "base/error.h"
#include "tests/equivalence/expect_row.h"

namespace zeroth::equivalence::gather_test {
namespace {

Row stage3(int ranks, const std::string& model) {
  Row row = {.accumulation = 2, .ranks = ranks, .model = model};
  row.zero.stage = 3;
  return row;
}

// The size that the refusal of a hopeless one names.
int64_t smallest_max_live(Row row) {
  row.zero.max_live_elements = 1;
  try {
    run_row(row);
  } catch (const Error& error) {
    std::cmatch match;
    if (std::regex_search(error.what(), match, std::regex("smallest value that works is (\\d+)")))
      return std::stoll(match[1]);
  }
  return 0;
}

}  // namespace

TEST_CASE("units under the persistence threshold stay whole and change no bit") {
  RowChecker checker;
  for (const char* model : {"llama", "qwen3_tied", "gpt2"}) {
    Row row = stage3(2, model);
    const int64_t sharded = checker.result(row).persistent_bytes;
    int64_t before = sharded;
    // Tied models' norms and positions; also embeddings and heads; everything.
    for (const int64_t threshold : {1'000, 1'100, 100'000}) {
      row.zero.param_persistence_threshold_elements = threshold;
      checker.check(row);
      CHECK(checker.result(row).persistent_bytes >= before);
      before = checker.result(row).persistent_bytes;
    }
    CHECK(before > 1.9 * static_cast<double>(sharded));
    CHECK(checker.result(row).peak_live_elements == 0);
  }
}

TEST_CASE("what is gathered ahead, and whether it overlaps, changes no bit") {
  RowChecker checker;
  std::vector<int64_t> peaks;
  for (const int64_t prefetch : {0, 2'000, 1'000'000'000}) {
    for (const int64_t every_nth_block : {0, 1}) {
      Row row = stage3(3, "qwen3_tied");
      row.recompute.every_nth_block = every_nth_block;
      row.zero.prefetch_bucket_elements = prefetch;
      checker.check(row);
      peaks.push_back(checker.result(row).peak_live_elements);
    }
  }
  CHECK(peaks[0] < peaks[2]);
  CHECK(peaks[2] < peaks[4]);
  for (const int stage : {0, 1, 2, 3}) {
    Row row = stage3(2, "gpt2");
    row.zero.stage = stage;
    row.zero.overlap_comm = false;
    checker.check(row);
  }
}

TEST_CASE("the smallest max_live that works is kept to and changes no bit, nor does 0") {
  RowChecker checker;
  for (const char* model : {"llama", "qwen3_tied", "gpt2"}) {
    Row row = stage3(2, model);
    row.recompute.number_checkpoints = 2;
    row.zero.max_live_elements = smallest_max_live(row);
    checker.check(row);
    CHECK(checker.result(row).peak_live_elements == row.zero.max_live_elements);
    row.zero.max_live_elements -= 1;
    CHECK_THROWS_AS(run_row(row), Error);
    const int64_t two_blocks = row.zero.max_live_elements + 1;
    row.zero.max_live_elements = 0;  // nothing ahead
    checker.check(row);
    CHECK(checker.result(row).peak_live_elements < two_blocks);
  }
}

}  // namespace zeroth::equivalence::gather_test
