#include "tests/data/template_cases.h"

namespace zeroth::data::template_operations_test {

TEST_CASE("Operators calculate and compare as in Python") {
  check_template_cases("operators");
}

TEST_CASE("Integers never wrap") {
  check_contains(render_error("{{ 9223372036854775807 + 1 }}"), "beyond 64 bits");
  check_contains(render_error("{{ 3 ** 10000000000 }}"), "beyond 64 bits");
  check_contains(render_error("{{ (-9223372036854775807 - 1) // -1 }}"), "beyond 64 bits");
  CHECK(render_text("{{ (-9223372036854775807 - 1) % -1 }}") == "0");
}

}  // namespace zeroth::data::template_operations_test
