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

TEST_CASE("owner_number: numbers in names have a limit") {
  CHECK(step_of("step-1000000000000000") == kMaxCount);
  for (const char* const number :
       {"1000000000000001", "9223372036854775807", "18446744073709551616"}) {
    CHECK(!step_of(std::string("step-") + number));
    CHECK(!epoch_of_owner(std::string(".owner-") + number));
    CHECK(parse_attempt(std::string(number) + ".1") == Attempt{});
    CHECK(parse_attempt("1." + std::string(number)) == Attempt{});
  }
}

TEST_CASE("folders of Hugging Face's Trainer are named by their steps") {
  CHECK(step_of_trainer("checkpoint-8") == 8);
  for (const char* const other : {"step-8", "checkpoint-", "checkpoint-08", "checkpoint-best"}) {
    CHECK(!step_of_trainer(other));
  }
}

TEST_CASE("the step of a path is that of its last part") {
  CHECK(step_of_path("out/step-4/step-8") == 8);
  CHECK(step_of_path("out/.old-step-8-3.1/") == 8);
  CHECK(!step_of_path("step-8/kept"));
  CHECK(!step_of_path(""));
}

}  // namespace zeroth::checkpoint
