#include "tests/data/template_cases.h"

namespace zeroth::data::template_evaluator_test {

TEST_CASE("Statements run as in Jinja") {
  check_template_cases("evaluator");
}

TEST_CASE("Deep recursion of loops is an error") {
  check_contains(render_error("{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}"),
                 "nested deeper than");
}

TEST_CASE("Endless recursion of macros is an error") {
  check_contains(render_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
                 "nested deeper than");
}

}  // namespace zeroth::data::template_evaluator_test
