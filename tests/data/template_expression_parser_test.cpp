#include "tests/data/template_cases.h"

namespace zeroth::data::template_expression_parser_test {

TEST_CASE("Expressions are parsed as by Jinja") {
  check_template_cases("expressions");
  check_template_cases("primaries");
}

TEST_CASE("Deep nesting of an expression is an error") {
  const std::string open(5000, '('), close(5000, ')');
  check_contains(render_error("{{ " + open + "1" + close + " }}"), "nested deeper than");
  std::string sum = "1", negation;
  for (int i = 0; i < 80000; ++i) sum += "+1";
  for (int i = 0; i < 5000; ++i) negation += "not ";
  check_contains(render_error("{{ " + sum + " }}"), "nested deeper than");
  check_contains(render_error("{{ " + negation + "1 }}"), "nested deeper than");
}

}  // namespace zeroth::data::template_expression_parser_test
