#include "base/affinity.h"

#include <doctest/doctest.h>

namespace zeroth {

using Cores = std::vector<int>;

TEST_CASE("binding narrows the process's own cores") {
  const Cores before = allowed_cores();
  REQUIRE_FALSE(before.empty());
  REQUIRE(bind_to_cores({before.back()}) == 0);
  CHECK(allowed_cores() == Cores{before.back()});
  REQUIRE(bind_to_cores(before) == 0);
  CHECK(allowed_cores() == before);
}

}  // namespace zeroth
