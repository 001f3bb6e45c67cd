#include "launcher/run/stopped_ranks.h"

#include <doctest/doctest.h>

namespace zeroth::launcher {

TEST_CASE("stopped ranks are named once, with the way to continue them") {
  StoppedRanks ranks;
  CHECK(ranks.tell({}, 3).empty());
  CHECK(ranks.tell({{1, 41}}, 3) ==
        "rank 1 is stopped (SIGSTOP or a debugger): the others will wait for it; to let it go on: "
        "kill -CONT 41");
  CHECK(ranks.any());
  CHECK(ranks.tell({{1, 41}}, 3).empty());
  CHECK(ranks.tell({{0, 40}, {1, 41}}, 3) ==
        "ranks 0, 1 are stopped (SIGSTOP or a debugger): the others will wait for them; to let "
        "them go on: kill -CONT 40 41");
  CHECK(ranks.tell({{0, 40}, {1, 41}}, 2) == "");
}

TEST_CASE("a job whose ranks are all stopped is told from one that waits for some of them") {
  StoppedRanks ranks;
  CHECK(ranks.tell({{0, 40}, {1, 41}}, 2) ==
        "all ranks are stopped (SIGSTOP or a debugger): nothing happens until somebody continues "
        "the job; to let them go on: kill -CONT 40 41");
  CHECK(ranks.tell({}, 2) == "all ranks go on");
  CHECK_FALSE(ranks.any());
  CHECK(ranks.tell({{0, 40}}, 1) ==
        "rank 0 is stopped (SIGSTOP or a debugger): nothing happens until somebody continues the "
        "job; to let it go on: kill -CONT 40");
}

}  // namespace zeroth::launcher
