// The step's loss is the mean over all trained tokens of the global batch, however they lie.
#include <doctest/doctest.h>

#include "tests/equivalence/expect_row.h"

namespace zeroth::equivalence::targets_test {

TEST_CASE("how trained tokens fall on ranks and micro-batches changes no loss") {
  RowChecker checker;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t accumulation : {1, 2, 3}) {
      if (kGlobalBatch % (ranks * accumulation) != 0) continue;
      Row row = {.accumulation = accumulation, .ranks = ranks, .masked = true};
      row.zero.stage = static_cast<int>((ranks + accumulation) % 4);
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("untrained targets count in no precision and no model") {
  RowChecker checker;
  for (const char* model : {"llama", "qwen3_tied", "gpt2"}) {
    for (const configs::Precision precision :
         {configs::Precision::kFp32, configs::Precision::kBf16, configs::Precision::kFp16}) {
      Row row = {
          .precision = precision, .accumulation = 2, .ranks = 2, .model = model, .masked = true};
      row.zero.stage = 2;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::targets_test
