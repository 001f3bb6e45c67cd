#include "launcher/cores.h"

#include <doctest/doctest.h>

#include "launcher/cli.h"

namespace zeroth::launcher {

using Cores = std::vector<int>;
using Parts = std::vector<std::vector<int>>;

TEST_CASE("a core list holds cores and ranges in its own order") {
  const Cores allowed = {0, 1, 2, 3, 8, 9};
  CHECK(parse_core_list("0-3,8", allowed) == Cores{0, 1, 2, 3, 8});
  CHECK(parse_core_list("9,1-1", allowed) == Cores{9, 1});
}

TEST_CASE("a core list that is wrong or leaves the process's cores is refused") {
  const Cores allowed = {0, 1, 2};
  for (const char* text : {"a", "1-", "-1", "", "1,,2", "2-1", "0 1", "1.5"})
    CHECK_THROWS_AS(parse_core_list(text, allowed), UsageError);
  CHECK_THROWS_WITH(parse_core_list("1-3", allowed),
                    "--bind_core_list 1-3: core 3 is not available; available are 0,1,2");
  CHECK_THROWS_WITH(parse_core_list("0,0", allowed), "--bind_core_list 0,0: core 0 is repeated");
}

TEST_CASE("cores are split into contiguous ranges of nearly equal size") {
  CHECK(split_cores({0, 1, 2, 3}, 1) == Parts{{0, 1, 2, 3}});
  CHECK(split_cores({0, 1, 2, 3}, 2) == Parts{{0, 1}, {2, 3}});
  CHECK(split_cores({4, 5, 6, 9, 11}, 2) == Parts{{4, 5, 6}, {9, 11}});
  CHECK(split_cores({0, 1, 2, 3, 4}, 4) == Parts{{0, 1}, {2}, {3}, {4}});
}

TEST_CASE("with fewer cores than parts each part gets all") {
  CHECK(split_cores({0, 1}, 3) == Parts{{0, 1}, {0, 1}, {0, 1}});
}

TEST_CASE("binding narrows the process's own cores") {
  const Cores before = allowed_cores();
  REQUIRE_FALSE(before.empty());
  REQUIRE(bind_to_cores({before.back()}) == 0);
  CHECK(allowed_cores() == Cores{before.back()});
  REQUIRE(bind_to_cores(before) == 0);
  CHECK(allowed_cores() == before);
}

}  // namespace zeroth::launcher
