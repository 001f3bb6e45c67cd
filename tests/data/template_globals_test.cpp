#include "tests/data/template_cases.h"

namespace zeroth::data::template_globals_test {

TEST_CASE("Global functions and tests do as in Jinja") {
  check_template_cases("globals");
  check_template_cases("predicates");
}

TEST_CASE("A call that would change the context is an error") {
  check_contains(render_error("{{ l.append(1) }}", R"({"l": []})"),
                 "access to attribute 'append' of 'list' object is unsafe");
  check_contains(render_error("{{ range(10 ** 12) }}"), "more than the limit of 100000 numbers");
  check_contains(render_error("{{ lipsum() }}"), "'lipsum' is not supported");
}

}  // namespace zeroth::data::template_globals_test
