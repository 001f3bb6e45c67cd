#include "base/complaints.h"

#include <doctest/doctest.h>

namespace zeroth {

TEST_CASE("complaints are lines of one message, the first twenty and how many more there are") {
  CHECK(listed({}) == "");
  CHECK(listed({"a"}) == "a");
  CHECK(listed({"a", "b"}) == "a\n  b");
  CHECK(listed({"a", "b", "c"}, 1) == "a\n  and 2 more");
  const std::string many = listed(std::vector<std::string>(100'000, "x"));
  CHECK(many.starts_with("x\n  x\n"));
  CHECK(many.ends_with("x\n  and 99980 more"));
  CHECK(many.size() < 200);
}

TEST_CASE("no text within a complaint begins a line of its own") {
  CHECK(listed({"a", "b\n  c"}) == "a\n  b\\n  c");
}

}  // namespace zeroth
