#include "tests/data/template_cases.h"

namespace zeroth::data::template_list_filters_test {

TEST_CASE("Filters of lists do as in Jinja") {
  check_template_cases("sequence_filters");
}

TEST_CASE("A second use of what a filter returned is an error") {
  CHECK(render_error("{% set g = [1]|map('string') %}{{ g|list }}{{ g|list }}") ==
        "t.jinja:1:49: a second use of what a filter returned is not supported");
}

}  // namespace zeroth::data::template_list_filters_test
