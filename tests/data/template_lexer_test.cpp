#include "tests/data/template_cases.h"

namespace zeroth::data::template_lexer_test {

TEST_CASE("White space, comments, raw blocks, numbers and strings are read as Jinja reads them") {
  check_template_cases("lexer");
}

TEST_CASE("An error of the lexer has its line and column in characters") {
  CHECK(render_error("a\r\né{{ 'abc }}") == "t.jinja:2:5: the end of the string is missing");
  CHECK(render_error("{{ a ! }}") == "t.jinja:1:6: unexpected character '!'");
  check_contains(render_error("{{ \u00e9 }}"), "1:4: a name with characters other than ASCII");
  check_contains(render_error("{{ '\\ud800' }}"), "escape is not supported");
}

}  // namespace zeroth::data::template_lexer_test
