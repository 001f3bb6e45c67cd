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
  CHECK(describe_waiting({.available = 1, .needed = 2}, limit, {}) ==
        "1 host of at least 2 available: waiting up to 600 s for more");
  CHECK(describe_waiting({.available = 2, .needed = 3}, limit, {"c", "d"}) ==
        "2 hosts of at least 3 available: waiting up to 600 s for more; no answer yet from c, d");
  CHECK(describe_missing_quorum({.available = 1, .needed = 2}, {"a"}, limit, 75) ==
        "only 1 host (a) available after 600 s, at least 2 needed (--elastic): checkpoints are "
        "intact, resubmit the run (exit code 75)");
  CHECK(describe_missing_quorum({.needed = 1}, {}, limit, 75)
            .starts_with("no host available after 600 s"));
}

TEST_CASE("an elastic run tells how many ranks one copy of the model needs") {
  const ModelParallelSize size = {.pipeline = 2, .tensor = 1};
  CHECK(describe_spares(1, 3, size) ==
        "1 of 3 ranks waits as a spare: ranks must be a multiple of 2 (2 pipeline stages x 1 "
        "tensor-parallel rank)");
  CHECK(describe_spares(3, 7, {.pipeline = 2, .tensor = 2})
            .starts_with("3 of 7 ranks wait as spares: ranks must be a multiple of 4"));
  CHECK(describe_missing_quorum(count_ranks({1}, size), {"a"}, std::chrono::seconds(6), 75) ==
        "only 1 rank (a) available after 6 s, at least 2 needed (2 pipeline stages x 1 "
        "tensor-parallel rank): checkpoints are intact, resubmit the run (exit code 75)");
}

}  // namespace zeroth::launcher::elastic_messages_test
