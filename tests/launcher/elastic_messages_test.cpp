#include "launcher/cluster/elastic_messages.h"

#include <doctest/doctest.h>

#include <csignal>

namespace zeroth::launcher {

TEST_CASE("an elastic run tells which hosts it is about") {
  CHECK(describe_joined({"b"}) == "host b has come");
  CHECK(describe_joined({"b", "c"}) == "hosts b, c have come");
  CHECK(describe_signaled({"b"}, SIGTERM) == "host b was sent SIGTERM");
  CHECK(describe_signaled({"b", "c"}, SIGINT) == "hosts b, c were sent SIGINT");
  const std::chrono::milliseconds limit(600'000);
  CHECK(describe_waiting(1, 2, limit, {}) ==
        "1 host of at least 2 are there: the run waits up to 600 s for more");
  CHECK(describe_waiting(2, 3, limit, {"c", "d"}) ==
        "2 hosts of at least 3 are there: the run waits up to 600 s for more; no answer yet of c, "
        "d");
  CHECK(describe_missing_quorum({"a"}, 2, limit, 75) ==
        "only 1 host (a) is there after 600 s, at least 2 must be there (--elastic): what is saved "
        "stands, start the run again (exit code 75)");
  CHECK(describe_missing_quorum({}, 1, limit, 75).starts_with("no host is there after 600 s"));
}

}  // namespace zeroth::launcher
