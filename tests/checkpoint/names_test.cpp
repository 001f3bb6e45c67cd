#include "checkpoint/names.h"

#include <doctest/doctest.h>

namespace zeroth::checkpoint::names_test {

TEST_CASE("a step's folder has one name, and only that is one") {
  CHECK(step_name(800) == "step-800");
  CHECK(parse_step("step-800") == 800);
  CHECK(parse_step("step-0") == 0);
  for (const char* const other :
       {"step-", "step-08", "step-+8", "step--8", "step-8 ", "Step-8", "xstep-8", "step-8.1",
        "step-99999999999999999999", "", ".tmp-step-8-1.1"}) {
    CHECK(!parse_step(other));
  }
}

TEST_CASE("attempts are ordered by epoch, then by number, not by their text") {
  CHECK(to_string(SaveAttempt{3, 12}) == "3.12");
  CHECK(parse_attempt("3.12") == SaveAttempt{3, 12});
  CHECK(parse_attempt("10.1") > parse_attempt("9.30"));
  CHECK(parse_attempt("9.30") > parse_attempt("9.4"));
  for (const char* const other : {"", "3", "3.", ".1", "a.b", "3.1.2", "-3.1"}) {
    CHECK(parse_attempt(other) == SaveAttempt{});
  }
}

TEST_CASE("what is no checkpoint yet, or any more, has names of its own") {
  CHECK(temporary_name(8, {3, 1}) == ".tmp-step-8-3.1");
  CHECK(parse_old_step(".old-step-8-3.1") == 8);
  CHECK(!parse_old_step(".old-step-8"));
  CHECK(!parse_old_step(".tmp-step-8-3.1"));
  CHECK(parse_owner_generation(".owner-12") == 12);
  CHECK(!parse_owner_generation(".owner-"));
  CHECK(!parse_owner_generation(".owner-012"));
}

TEST_CASE("owner_number: numbers in names have a limit") {
  CHECK(parse_step("step-1000000000000000") == kMaxCount);
  for (const char* const number :
       {"1000000000000001", "9223372036854775807", "18446744073709551616"}) {
    CHECK(!parse_step(std::string("step-") + number));
    CHECK(!parse_owner_generation(std::string(".owner-") + number));
    CHECK(parse_attempt(std::string(number) + ".1") == SaveAttempt{});
    CHECK(parse_attempt("1." + std::string(number)) == SaveAttempt{});
  }
}

TEST_CASE("folders of Hugging Face's Trainer are named by their steps") {
  CHECK(parse_trainer_step("checkpoint-8") == 8);
  for (const char* const other : {"step-8", "checkpoint-", "checkpoint-08", "checkpoint-best"}) {
    CHECK(!parse_trainer_step(other));
  }
}

TEST_CASE("the step of a path is that of its last part") {
  CHECK(step_from_path("out/step-4/step-8") == 8);
  CHECK(step_from_path("out/.old-step-8-3.1/") == 8);
  CHECK(!step_from_path("step-8/kept"));
  CHECK(!step_from_path(""));
}

}  // namespace zeroth::checkpoint::names_test
