#include "trainer/agreement.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::trainer {

TEST_CASE("the greatest value is known to all ranks") {
  testing::run_ranks(3, [](std::shared_ptr<comm::Mesh> mesh) {
    CHECK(greatest(*mesh, mesh->rank() == 1 ? 15 : 0, "numbers") == 15);
  });
}

TEST_CASE("what rank 0 complains about is thrown on all ranks, and nothing where it does not") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const bool first = mesh->rank() == 0;
    CHECK_NOTHROW(throw_if_rank_0_failed(*mesh, std::nullopt));
    CHECK_NOTHROW(throw_if_rank_0_failed(*mesh, first ? "" : "only rank 0 counts"));
    CHECK_THROWS_WITH_AS(throw_if_rank_0_failed(*mesh, first ? "disk full" : ""),
                         first ? "disk full" : "rank 0 failed: disk full", Error);
  });
}

}  // namespace zeroth::trainer
