#include "tests/data/template_cases.h"

namespace zeroth::data::template_format_test {

TEST_CASE("Formats print as in Python") {
  check_template_cases("format");
}

TEST_CASE("A huge width of a format is an error") {
  check_contains(render_error("{{ '%999999999d' % 1 }}"), "more memory than the limit");
  check_contains(render_error("{{ '{:>9999999999999999999999}'.format('a') }}"), "more memory");
}

}  // namespace zeroth::data::template_format_test
