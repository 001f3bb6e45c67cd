#include "checkpoint/rank_group.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/thread_rank_group.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::rank_group_test {

TEST_CASE("what all ranks tell is known to all, where none has failed") {
  ThreadRankGroup group(3);
  CHECK(group.run([](RankGroup& ranks) {
    const auto reported = commit_vote(ranks, "x", std::nullopt, std::to_string(ranks.rank()));
    if (reported != std::vector<std::string>{"0", "1", "2"}) throw Error("other answers");
  }) == std::vector<std::string>(3));
}

TEST_CASE("a rank that fails is named on all, with what it said; the others wait for nobody") {
  ThreadRankGroup group(3);
  const auto results = group.run([](RankGroup& ranks) {
    run_on_all_ranks(ranks, "writing", [&] {
      if (ranks.rank() != 1) throw Error("disk {} is full", ranks.rank());
    });
  });
  for (const std::string& result : results) {
    CHECK(result == "writing failed: rank 0: disk 0 is full\n  rank 2: disk 2 is full");
  }
}

TEST_CASE("one rank votes alone") {
  SingleRankGroup one;
  CHECK(commit_vote(one, "x", std::nullopt, "told") == std::vector<std::string>{"told"});
  CHECK(message_of<Error>([&] { (void)commit_vote(one, "x", "why"); }) == "x failed: rank 0: why");
}

}  // namespace zeroth::checkpoint::rank_group_test
