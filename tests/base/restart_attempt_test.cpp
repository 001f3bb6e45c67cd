#include "base/restart_attempt.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/variables.h"

namespace zeroth::restart_attempt_test {
namespace {

using testing::Variables;

RestartAttempt parse(const Variables& variables) {
  return parse_restart_attempt(testing::lookup_in(variables));
}

}  // namespace

TEST_CASE("which round it is stands in ZEROTH_ROUND, or torchrun counts") {
  struct Row {
    Variables variables;
    int64_t number;
    std::string cause;
    bool is_tracked, is_global, resumes;
  };
  const std::string cause = "rank 3 (on host b) was killed by SIGKILL";
  const Row rows[] = {
      {{}, 0, "", false, false, false},
      {{{"ZEROTH_ROUND", ""}}, 0, "", false, false, false},
      {{{"ZEROTH_ROUND", "0"}, {"ZEROTH_ROUND_CAUSE", "none yet"}}, 0, "", true, true, false},
      {{{"ZEROTH_ROUND", "2"}, {"ZEROTH_ROUND_CAUSE", cause}}, 2, cause, true, true, true},
      {{{"ZEROTH_ROUND", "2"}, {"ZEROTH_ROUND_CAUSE", "\x1b[2J"}},
       2,
       "\\u001b[2J",
       true,
       true,
       true},
      {{{"TORCHELASTIC_RESTART_COUNT", "3"}}, 3, "", true, false, true},
      {{{"TORCHELASTIC_RESTART_COUNT", "0"}}, 0, "", true, false, false},
      {{{"TORCHELASTIC_RESTART_COUNT", "3"}, {"ZEROTH_ROUND", "1"}}, 1, "", true, true, true},
  };
  for (const Row& row : rows) {
    const RestartAttempt attempt = parse(row.variables);
    CHECK(attempt.index == row.number);
    CHECK(attempt.cause == row.cause);
    CHECK(attempt.is_tracked == row.is_tracked);
    CHECK(attempt.is_global == row.is_global);
    CHECK(attempt.resumes == row.resumes);
    CHECK(attempt.run.empty());
  }
  CHECK(parse({{"ZEROTH_RUN", "0123456789abcdef"}}).run == "0123456789abcdef");
}

TEST_CASE("a variable of a round that means nothing is refused by name and value") {
  const auto refused = [](Variables variables) {
    return message_of<Error>([&] { parse(variables); });
  };
  CHECK(refused({{"ZEROTH_ROUND", "-1"}}) ==
        "environment variable ZEROTH_ROUND=-1 is not a number from 0 to 1000000");
  CHECK(refused({{"ZEROTH_ROUND", "1x"}}).find("ZEROTH_ROUND=1x is not") != std::string::npos);
  CHECK(refused({{"TORCHELASTIC_RESTART_COUNT", "many"}}).find("=many is not a number") !=
        std::string::npos);
  for (const char* run :
       {"0123456789abcde", "0123456789abcdefa", "0123456789abcdeg", "../../../../etc/x"})
    CHECK(refused({{"ZEROTH_RUN", run}}).find(" is not 16 hex digits") != std::string::npos);
  for (const std::string& cause : {std::string(401, 'x'), std::string("two\nlines")})
    CHECK(refused({{"ZEROTH_ROUND", "1"}, {"ZEROTH_ROUND_CAUSE", cause}})
              .find("is not one line of at most 400 bytes") != std::string::npos);
}

TEST_CASE("what a launcher tells of a round is what its ranks understand") {
  const RestartAttempt attempt{"0123456789abcdef", 2, "host b has joined", true, true, true};
  Variables variables;
  for (const auto& [name, value] : restart_variables(attempt)) variables[name] = value;
  CHECK(parse(variables) == attempt);
}

}  // namespace zeroth::restart_attempt_test
