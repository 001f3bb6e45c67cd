#include "base/hash.h"

#include <doctest/doctest.h>

namespace zeroth::hash_test {

TEST_CASE("hashes are those that their authors publish") {
  CHECK(fnv1a("") == 0xcbf29ce484222325);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8c);
  CHECK(fnv1a("foobar") == 0x85944171f73967e8);
  CHECK(fnv1a(fnv1a("fooba"), 'r') == fnv1a("foobar"));
  CHECK(mix64(kGolden) == 0xe220a8397b1dcdaf);
  CHECK(mix64(2 * kGolden) == 0x6e789e6aa1b965f4);
}

}  // namespace zeroth::hash_test
