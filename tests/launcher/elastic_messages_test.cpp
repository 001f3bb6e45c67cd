#include "launcher/cluster/rendezvous_state.h"

#include <doctest/doctest.h>

#include <csignal>

namespace zeroth::launcher::elastic_messages_test {

TEST_CASE("an elastic run tells which hosts it is about") {
  CHECK(describe_joined({"b"}) == "host b has joined");
  CHECK(describe_joined({"b", "c"}) == "hosts b, c have joined");
  CHECK(describe_signaled({"b"}, SIGTERM) == "host b was sent SIGTERM");
  CHECK(describe_signaled({"b", "c"}, SIGINT) == "hosts b, c were sent SIGINT");
  const std::chrono::milliseconds limit(600'000);
  CHECK(describe_waiting(1, 2, limit, {}) ==
        "1 host of at least 2 available: waiting up to 600 s for more");
  CHECK(describe_waiting(2, 3, limit, {"c", "d"}) ==
        "2 hosts of at least 3 available: waiting up to 600 s for more; no answer yet from c, d");
  CHECK(describe_missing_quorum({"a"}, 2, limit, 75) ==
        "only 1 host (a) available after 600 s, at least 2 needed (--elastic): checkpoints are "
        "intact, resubmit the run (exit code 75)");
  CHECK(describe_missing_quorum({}, 1, limit, 75).starts_with("no host available after 600 s"));
}

}  // namespace zeroth::launcher::elastic_messages_test
