#include "checkpoint/names.h"

#include <doctest/doctest.h>

namespace zeroth::checkpoint {

TEST_CASE("a step's folder has one name, and only that is one") {
  CHECK(step_name(800) == "step-800");
  CHECK(step_of("step-800") == 800);
  CHECK(step_of("step-0") == 0);
  for (const char* const other :
       {"step-", "step-08", "step-+8", "step--8", "step-8 ", "Step-8", "xstep-8", "step-8.1",
        "step-99999999999999999999", "", ".tmp-step-8-1.1"}) {
    CHECK(!step_of(other));
  }
}

TEST_CASE("attempts are ordered by epoch, then by number, not by their text") {
  CHECK(text_of(Attempt{3, 12}) == "3.12");
  CHECK(parse_attempt("3.12") == Attempt{3, 12});
  CHECK(parse_attempt("10.1") > parse_attempt("9.30"));
  CHECK(parse_attempt("9.30") > parse_attempt("9.4"));
  for (const char* const other : {"", "3", "3.", ".1", "a.b", "3.1.2", "-3.1"}) {
    CHECK(parse_attempt(other) == Attempt{});
  }
}

TEST_CASE("what is no checkpoint yet, or any more, has names of its own") {
  CHECK(temporary_name(8, {3, 1}) == ".tmp-step-8-3.1");
  CHECK(step_of_old(".old-step-8-3.1") == 8);
  CHECK(!step_of_old(".old-step-8"));
  CHECK(!step_of_old(".tmp-step-8-3.1"));
  CHECK(epoch_of_owner(".owner-12") == 12);
  CHECK(!epoch_of_owner(".owner-"));
  CHECK(!epoch_of_owner(".owner-012"));
}

}  // namespace zeroth::checkpoint
