// Ranks of several machines train to what one rank trains to.
#include <doctest/doctest.h>

#include "tests/equivalence/expect_row.h"

namespace zeroth::equivalence::machines_test {

TEST_CASE("four ranks on two machines train to the losses of one, at every stage") {
  RowChecker checker;
  for (const int stage : {0, 1, 2, 3}) {
    Row row = {.ranks = 4, .machines = 2};
    row.zero.stage = stage;
    checker.check(row);
    row.ranks = row.tensor = 2;  // those of a machine share every layer
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

TEST_CASE("machines with one rank each, near ranks and 16 bits train to the same") {
  RowChecker checker;
  Row row = {.ranks = 3, .machines = 3};
  row.zero.stage = 2;
  checker.check(row);
  row = {.precision = configs::Precision::kBf16, .ranks = 4, .machines = 2};
  row.zero.stage = 3;
  checker.check(row);
  row.zero.hpz_partition_size = 2;  // a machine's ranks gather from each other alone
  checker.check(row);
}

}  // namespace zeroth::equivalence::machines_test
