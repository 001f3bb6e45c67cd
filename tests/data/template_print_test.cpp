#include "tests/data/template_cases.h"

namespace zeroth::data::template_print_test {

TEST_CASE("Values print as by str, repr and json.dumps of Python") {
  check_template_cases("print");
}

TEST_CASE("Integers beyond 64 bits of a template print exactly") {
  const std::string digits(200, '7');
  CHECK(render_text("{{ " + digits + " }}") == digits);
  check_contains(render_error("{{ " + digits + " + 1 }}"), "beyond 64 bits is not supported");
  CHECK(render_text("{{ [x]|tojson }}", R"({"x": 18446744073709551615})") ==
        "[18446744073709551615]");
}

}  // namespace zeroth::data::template_print_test
