#include "base/env_reader.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "tests/support/variables.h"

namespace zeroth::empty_variables_test {
namespace {

// Empty: none of these is refused.
std::string refusal(const testing::Variables& variables) {
  try {
    reject_empty_variables(testing::lookup_in(variables));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("empty_flag_value: a variable that is set and empty is named, with all others") {
  CHECK(refusal({{"MASTER_ADDR", ""}}) ==
        "environment variable MASTER_ADDR is empty: give it a value, or unset it");
  CHECK(refusal({{"ZEROTH_SECRET", ""}, {"DS_ENV_FILE", ""}, {"RANK", "0"}}) ==
        "environment variable DS_ENV_FILE is empty: give it a value, or unset it\n"
        "  environment variable ZEROTH_SECRET is empty: give it a value, or unset it");
  for (const char* const name : {"DS_ACCELERATOR", "PET_NNODES", "SLURM_NODEID", "ZEROTH_TIMEOUT"})
    CHECK(refusal({{name, ""}}).find(name) != std::string::npos);
}

TEST_CASE("empty_flag_value: what has a value, or a meaning when it is empty, is left alone") {
  CHECK(refusal({}).empty());
  CHECK(refusal({{"MASTER_ADDR", "a"}, {"RANK", "0"}}).empty());
  CHECK(refusal({{"CUDA_VISIBLE_DEVICES", ""}, {"PATH", ""}, {"ZEROTH_ROUND_CAUSE", ""}}).empty());
  CHECK(must_not_be_empty("RANK"));
  CHECK_FALSE(must_not_be_empty("CUDA_VISIBLE_DEVICES"));
}

}  // namespace zeroth::empty_variables_test
