#include "launcher/cluster/elastic_words.h"

#include <doctest/doctest.h>

#include <csignal>

namespace zeroth::launcher {

TEST_CASE("an elastic run tells which hosts it is about") {
  CHECK(have_come({"b"}) == "host b has come");
  CHECK(have_come({"b", "c"}) == "hosts b, c have come");
  CHECK(were_sent({"b"}, SIGTERM) == "host b was sent SIGTERM");
  CHECK(were_sent({"b", "c"}, SIGINT) == "hosts b, c were sent SIGINT");
  const std::chrono::milliseconds limit(600'000);
  CHECK(waits_for_more(1, 2, limit, {}) ==
        "1 host of at least 2 are there: the run waits up to 600 s for more");
  CHECK(waits_for_more(2, 3, limit, {"c", "d"}) ==
        "2 hosts of at least 3 are there: the run waits up to 600 s for more; no answer yet of c, "
        "d");
  CHECK(too_few_hosts({"a"}, 2, limit, 75) ==
        "only 1 host (a) is there after 600 s, at least 2 must be there (--elastic): what is saved "
        "stands, start the run again (exit code 75)");
  CHECK(too_few_hosts({}, 1, limit, 75).starts_with("no host is there after 600 s"));
}

}  // namespace zeroth::launcher
