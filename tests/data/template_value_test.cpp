#include "data/chat_template/template_value.h"

#include "data/chat_template/template_operations.h"
#include "tests/data/template_cases.h"

namespace zeroth::data::template_value_test {

namespace {

using jinja::Arena;
using jinja::TextBuilder;
using jinja::Value;

// "ab" from source 1 and "cd" from source 2.
Value two_sources(Arena& arena) {
  return concat(arena, view_string(arena, "ab", 1), view_string(arena, "cd", 2));
}

}  // namespace

TEST_CASE("Parts of a string keep their sources") {
  Arena arena(size_t{1} << 20);
  const Value text = two_sources(arena);
  CHECK(text.text() == "abcd");
  CHECK(source_at(text, 1) == 1);
  CHECK(source_at(text, 2) == 2);
  const Value part = substring(arena, text, 1, 4);
  CHECK(part.text() == "bcd");
  CHECK(source_at(part, 0) == 1);
  CHECK(source_at(part, 1) == 2);
  const Value upper = convert_case(arena, text, jinja::LetterCase::kUpper);
  CHECK(upper.text() == "ABCD");
  CHECK(source_at(upper, 3) == 2);
}

TEST_CASE("A mark fills the gaps between sources") {
  Arena arena(size_t{1} << 20);
  TextBuilder out(arena);
  out.append("x");
  out.append("[");
  out.append("a", 2);
  out.append("]");
  out.mark_since(1, 1);
  const Value text = out.build();
  CHECK(source_at(text, 0) == 0);
  CHECK(source_at(text, 1) == 1);
  CHECK(source_at(text, 2) == 2);
  CHECK(source_at(text, 3) == 1);
}

TEST_CASE("An arena refuses memory and steps beyond its limits") {
  Arena arena(size_t{100} << 10, 10);
  (void)arena.allocate(1000);
  check_contains(error_of([&] { arena.allocate(size_t{100} << 10); }), "more memory");
  arena.charge(10);
  check_contains(error_of([&] { arena.charge(1); }), "limit of 10 steps");
}

}  // namespace zeroth::data::template_value_test
