#include "base/machine/random_bytes.h"

#include <doctest/doctest.h>

namespace zeroth::random_bytes_test {

TEST_CASE("random bytes are as many as are asked for, and others each time") {
  CHECK(random_bytes(0).empty());
  CHECK(random_bytes(1).size() == 1);
  CHECK(random_bytes(1000).size() == 1000);
  CHECK(random_bytes(32) != random_bytes(32));
}

TEST_CASE("a random id has two digits per byte, and no other process draws it") {
  CHECK(random_hex(8).size() == 16);
  CHECK(random_hex(8).find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(random_hex(8) != random_hex(8));
  CHECK(random_word() != random_word());
}

}  // namespace zeroth::random_bytes_test
