#include "data/chat_template/template_operations.h"

#include "tests/data/template_cases.h"

namespace zeroth::data::template_text_test {

TEST_CASE("Letters change their case as in Python") {
  check_template_cases("case");
}

TEST_CASE("A replacement keeps the sources around it") {
  jinja::Arena arena(size_t{1} << 20);
  const jinja::Value string =
      concat(arena, jinja::view_string(arena, "ab", 1), jinja::view_string(arena, "cd", 2));
  const jinja::Value text = replace(arena, string, "bc", jinja::view_string(arena, "-"), -1);
  CHECK(text.text() == "a-d");
  CHECK(source_at(text, 0) == 1);
  CHECK(source_at(text, 1) == 0);
  CHECK(source_at(text, 2) == 2);
}

}  // namespace zeroth::data::template_text_test
