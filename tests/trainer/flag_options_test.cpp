#include "trainer/flags/flag_rules.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::flag_options_test {

TEST_CASE("whole numbers are read in base 10, to the last character and never clamped") {
  CHECK(parse("--steps 010").steps == 10);
  CHECK(parse("--seed 9223372036854775807").values.seed == 9223372036854775807U);
  CHECK(has(usage_error("--steps 0x10"), "--steps 0x10: must be a whole number"));
  CHECK(has(usage_error("--steps 1e3"), "--steps 1e3: must be a whole number"));
  CHECK(has(usage_error("--micro-batch 2.5"), "--micro-batch 2.5: must be a whole number"));
  CHECK(has(usage_error("--seed 99999999999999999999"), "must be at most 9223372036854775807"));
  CHECK(has(usage_error("--seed -99999999999999999999"), "is too small"));
  CHECK(has(usage_error("--steps 1000000000000001"), "must be at most 1000000000000000"));
  CHECK(has(usage_error("--steps 1000000000000001"), "must be at most 1000000000000000"));
  CHECK(has(usage_error("--warmup-steps 1000000000000001"), "must be at most 1000000000000000"));
  CHECK(has(usage_error("--lr fast --steps x"), "--lr fast: must be a number"));
  CHECK(has(usage_error("--lr fast --steps x"), "--steps x: must be a whole number"));
}

TEST_CASE("steps to trace are one, or the first and the last") {
  CHECK(parse("--output o --trace-steps 3").trace_steps == StepRange{3, 3});
  CHECK(parse("--output o --trace-steps 3:102").trace_steps == StepRange{3, 102});
  CHECK(has(usage_error("--output o --trace-steps 0"), "--trace-steps 0: must be a step from 1"));
  CHECK(has(usage_error("--output o --trace-steps 5:4"), "--trace-steps 5:4: must be a step"));
  CHECK(has(usage_error("--output o --trace-steps 3:"), "3:: must be a whole number"));
  CHECK(has(usage_error("--output o --trace-steps 3:103"), "must be at most 100 steps"));
  CHECK(has(usage_error("--trace-steps 3"), "--trace-steps needs --output"));
}

}  // namespace zeroth::trainer::flag_options_test
