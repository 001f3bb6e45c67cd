#include "tests/data/template_cases.h"

namespace zeroth::data::template_parser_test {

TEST_CASE("Statements are parsed as by Jinja") {
  check_template_cases("parser");
}

TEST_CASE("Variables belong to the scopes of Jinja") {
  check_template_cases("scopes");
}

TEST_CASE("Deep nesting of statements is an error, a long chain of elif is none") {
  std::string nested, chain = "{% if x %}";
  for (int i = 0; i < 5000; ++i) nested += "{% if 1 %}";
  for (int i = 0; i < 5000; ++i) chain += "{% elif x %}";
  check_contains(render_error(nested), "nested deeper than");
  CHECK(render_text(chain + "{% else %}a{% endif %}") == "a");
}

TEST_CASE("A tag that is not supported is named") {
  CHECK(render_error("a {% include 'b' %}") == "t.jinja:1:6: the tag 'include' is not supported");
}

TEST_CASE("A macro that could outlive the variables of a loop is an error") {
  check_contains(render_error("{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}{{ i }}"
                              "{% endmacro %}{% set ns.f = f %}{% endfor %}{{ ns.f() }}"),
                 "a macro as an attribute of a namespace is not supported");
}

}  // namespace zeroth::data::template_parser_test
