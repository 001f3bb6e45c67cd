#include "base/machine/cpu.h"

#include <doctest/doctest.h>

namespace zeroth::affinity_test {

using Cores = std::vector<int>;

TEST_CASE("binding narrows the process's own cores") {
  const Cores before = allowed_cores();
  REQUIRE_FALSE(before.empty());
  REQUIRE(set_affinity({before.back()}) == 0);
  CHECK(allowed_cores() == Cores{before.back()});
  REQUIRE(set_affinity(before) == 0);
  CHECK(allowed_cores() == before);
}

}  // namespace zeroth::affinity_test
