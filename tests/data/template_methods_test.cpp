#include "tests/data/template_cases.h"

namespace zeroth::data::template_methods_test {

TEST_CASE("Methods of strings do as in Python") {
  check_template_cases("methods");
}

TEST_CASE("A method of Python that is not supported is named") {
  CHECK(render_error("{{ 'a'.swapcase() }}") ==
        "t.jinja:1:7: 'swapcase' of 'str' is not supported");
}

}  // namespace zeroth::data::template_methods_test
