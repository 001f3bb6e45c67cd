#include "base/machine/random_bytes.h"

#include <doctest/doctest.h>

namespace zeroth {

TEST_CASE("random bytes are as many as are asked for, and others each time") {
  CHECK(random_bytes(0).empty());
  CHECK(random_bytes(1).size() == 1);
  CHECK(random_bytes(1000).size() == 1000);
  CHECK(random_bytes(32) != random_bytes(32));
}

}  // namespace zeroth
