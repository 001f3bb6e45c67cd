#include "launcher/run/restart_policy.h"

#include <doctest/doctest.h>

#include <csignal>

namespace zeroth::launcher::restart_policy_test {
namespace {

JobOutcome failed(int status, const std::string& message = "rank 1 ended") {
  return {.status = status, .message = message, .end = JobEnd::kFailed};
}

using Variables = std::vector<std::pair<std::string, std::string>>;

}  // namespace

TEST_CASE("a failure takes a restart, and the last one ends the run") {
  RestartPolicy policy("00ff", 2);
  CHECK(policy.try_restart(failed(1)));
  CHECK(policy.describe_restarts() == "1 of 2 restarts used");
  CHECK(policy.try_restart(failed(1)));
  CHECK_FALSE(policy.try_restart(failed(1)));
  CHECK(policy.current().index == 2);
  CHECK(policy.no_restart_reason(failed(1)) ==
        "the run is not restarted: --max-restarts 2 are used up");
  CHECK(RestartPolicy("", 0).no_restart_reason(failed(1)) == "");
}

TEST_CASE("new hosts take no restart, a wrong command line and an end that was wanted none") {
  RestartPolicy policy("00ff", 1);
  CHECK(policy.try_restart({.end = JobEnd::kRestartRequested}, "host b has joined"));
  CHECK(policy.current() == RestartAttempt{"00ff", 1, "host b has joined"});
  CHECK_FALSE(policy.try_restart(failed(2)));
  CHECK_FALSE(policy.try_restart({.status = 143, .end = JobEnd::kStopped, .signal = SIGTERM}));
  CHECK_FALSE(policy.try_restart({}));
  JobOutcome interrupted = failed(1);
  interrupted.signal = SIGINT;
  CHECK_FALSE(policy.try_restart(interrupted));
  CHECK(policy.no_restart_reason(interrupted) == "");
  CHECK(policy.try_restart(failed(1)));
}

TEST_CASE("a run that comes further has all its restarts again") {
  RestartPolicy policy("00ff", 1);
  for (int attempt = 0; attempt < 5; ++attempt) {
    CHECK(policy.try_restart(failed(1)));
    CHECK(policy.describe_restarts() == "1 of 1 restarts used");
    policy.reset_restarts();
  }
  CHECK(policy.try_restart(failed(1)));
  CHECK_FALSE(policy.try_restart(failed(1)));
}

TEST_CASE("ranks are told the run, the round and in one short line why there is another one") {
  CHECK(restart_variables({}) == Variables{});
  CHECK(restart_variables({"00ff", 0, ""}) ==
        Variables{{"ZEROTH_RUN", "00ff"}, {"ZEROTH_ROUND", "0"}});
  RestartPolicy policy("00ff", 1);
  REQUIRE(policy.try_restart(failed(1, "rank 1 \x1b ended\n  | its last words")));
  CHECK(restart_variables(policy.current())[2].second == "rank 1 \\u001b ended");
  const auto cause = [](const std::string& text) {
    RestartPolicy wordy("00ff", 1);
    JobOutcome outcome = failed(1, "rank 1 ended; its last lines:\n  | a");
    outcome.cause = text;
    REQUIRE(wordy.try_restart(outcome));
    return restart_variables(wordy.current())[2].second;
  };
  CHECK(cause("rank 1 ended: no room") == "rank 1 ended: no room");
  CHECK(cause(std::string(400, 'a')) == std::string(400, 'a'));
  CHECK(cause(std::string(5000, 'a')) == std::string(397, 'a') + "...");
  std::string accents;
  for (int i = 0; i < 300; ++i) accents += "\u00e9";  // two bytes each
  CHECK(cause(accents) == accents.substr(0, 396) + "...");
  CHECK(cause(std::string(300, '\x1b')).size() <= 400);
}

TEST_CASE("the code to be requeued is for SIGTERM alone") {
  const JobOutcome term{.status = 143, .end = JobEnd::kStopped, .signal = SIGTERM};
  const JobOutcome interrupted{.status = 130, .end = JobEnd::kStopped, .signal = SIGINT};
  CHECK(to_exit_code(term, 75) == 75);
  CHECK(to_exit_code(term, std::nullopt) == 143);
  CHECK(to_exit_code(interrupted, 75) == 130);
  CHECK(to_exit_code(failed(3), 75) == 3);
  CHECK(to_exit_code({}, 75) == 0);
}

}  // namespace zeroth::launcher::restart_policy_test
