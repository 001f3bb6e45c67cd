#include "tests/data/template_cases.h"

namespace zeroth::data::template_filters_test {

TEST_CASE("Filters of single values do as in Jinja") {
  check_template_cases("filters");
}

TEST_CASE("A filter of Jinja that is not supported is named") {
  CHECK(render_error("{{ 'a'|urlize }}") == "t.jinja:1:8: 'urlize' is not supported");
}

}  // namespace zeroth::data::template_filters_test
