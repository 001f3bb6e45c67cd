#include "tests/data/template_cases.h"

namespace zeroth::data::template_expressions_test {

TEST_CASE("Attributes, items and slices are found as in Python") {
  check_template_cases("attributes");
}

TEST_CASE("The bounds of a slice can be as large as an integer") {
  CHECK(render_text("{{ 'abc'[-9223372036854775807:9223372036854775807] }}") == "abc");
  CHECK(render_text("{{ 'abc'[::9223372036854775807] }}") == "a");
  CHECK(render_text("{{ 'abc'[::-9223372036854775807] }}") == "c");
}

TEST_CASE("Expressions evaluate from left to right, and only as far as needed") {
  CHECK(render_text("{{ 0 and x.y }}{{ 1 or x.y }}") == "01");
  CHECK(render_text("{{ 1 > 2 < x.y }}") == "False");
  CHECK(render_text("{{ 'a' if true else x.y }}") == "a");
  CHECK(render_text("{{ {'a': 1, 'b': 2, 'a': 3} }}") == "{'a': 3, 'b': 2}");
}

TEST_CASE("An error of an expression has its line and column") {
  CHECK(render_error("a\n{{ 1 + x.y.z }}") == "t.jinja:2:9: 'x' is undefined");
  CHECK(render_error("{{ 'a' +\n none }}") ==
        "t.jinja:1:4: '+' of 'str' and 'NoneType' is not supported");
  CHECK(render_error("{{ raise_exception('own words') }}") == "t.jinja:1:19: own words");
}

TEST_CASE("Macros and builtins take their arguments as in Jinja") {
  check_template_cases("calls");
}

}  // namespace zeroth::data::template_expressions_test
