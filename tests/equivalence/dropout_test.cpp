// What dropout drops depends on the sample only.
#include <doctest/doctest.h>

#include "tests/equivalence/expect_row.h"

namespace zeroth::equivalence::dropout_test {

TEST_CASE("dropout drops the same under recompute, to the bit, and under every split") {
  RowChecker checker;
  for (const char* model : {"llama", "gpt2"}) {
    for (const int stage : {0, 1, 2, 3}) {
      Row row = {.accumulation = stage == 0 ? 1 : 2,
                 .ranks = stage == 0 ? 1 : 4 - stage,
                 .model = model,
                 .dropout = 0.1};
      row.zero.stage = stage;
      if (stage % 2 == 0) row.recompute.every_nth_block = 1;
      if (stage % 2 == 1) row.recompute.number_checkpoints = 2;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::dropout_test
