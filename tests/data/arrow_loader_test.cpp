#include "data/records/arrow_loader.h"

#include "tests/data/container_test_support.h"

namespace zeroth::data::arrow_loader_test {

TEST_CASE("Without Apache Arrow a table is refused, with what brings it") {
  if (arrow_library()) {
    CHECK(arrow_library()->filename() == "libzeroth_arrow.so");
    return;
  }
  check_contains(error_of([] { read_records_of(container("text.parquet")); }),
                 "text.parquet: Parquet needs Apache Arrow: tools/setup --arrow, then build again");
  check_contains(error_of([] { read_records_of(container("text.arrow")); }),
                 "text.arrow: an Arrow table needs Apache Arrow: tools/setup --arrow");
}

}  // namespace zeroth::data::arrow_loader_test
