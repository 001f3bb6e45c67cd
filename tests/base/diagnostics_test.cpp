#include "base/text/diagnostics.h"

#include <doctest/doctest.h>

#include <string>

namespace zeroth::diagnostics_test {

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

TEST_CASE("the distance counts insertions, deletions, substitutions and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("stage", "stage") == 0);
  CHECK(edit_distance("stage", "STAGE") == 0);
  CHECK(edit_distance("stag", "stage") == 1);
  CHECK(edit_distance("staage", "stage") == 1);
  CHECK(edit_distance("stahe", "stage") == 1);
  CHECK(edit_distance("satge", "stage") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("", "abc") == 3);
}

TEST_CASE("the nearest name is the one that was meant, or none") {
  CHECK(nearest_name("warmupdecaylr", {"WarmupLR", "WarmupDecayLR"}) == "WarmupDecayLR");
  CHECK(nearest_name("enable", {"enabled", "loss_scale"}) == "enabled");
  CHECK(nearest_name("xyzzy", {"stage", "enabled"}).empty());
  CHECK(nearest_name("x", {}).empty());
}

TEST_CASE("for the unknown names of one input a few guesses are made") {
  SuggestionBudget guesses;
  int made = 0;
  for (int name = 0; name < 100'000; ++name) made += guesses.take() ? 1 : 0;
  CHECK(made == SuggestionBudget::kMax);
}

TEST_CASE("a name of any length is compared with short ones at once") {
  const std::string name(1'000'000, 'a');
  for (int i = 0; i < 1000; ++i) CHECK(nearest_name(name, {"stage", "enabled"}).empty());
}

}  // namespace zeroth::diagnostics_test
