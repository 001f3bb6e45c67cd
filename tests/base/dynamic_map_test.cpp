#include "base/dynamic_map.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

#include "base/sha256.h"

namespace zeroth::dynamic_map_test {
namespace {

std::string digest_of(const std::array<float, 256>& values) {
  return to_hex(
      Sha256::of(std::string_view(reinterpret_cast<const char*>(values.data()), sizeof(values))));
}

}  // namespace

// The digests are those of bitsandbytes 0.50.2 on a processor with fused products.
TEST_CASE("the dynamic maps have the bits of bitsandbytes'") {
  CHECK(digest_of(dynamic_map(true)) ==
        "e732639a65f497b4ad684bb166a4467708255edd5207757de8b8f0c7e1fda89c");
  CHECK(digest_of(dynamic_map(false)) ==
        "305f002cc11278fb769d13b25b9fd0c7c83c8402c40a878fe086f4039fde6398");
}

TEST_CASE("the dynamic maps ascend, with 0 and the ends where headers say") {
  for (const bool is_signed : {true, false}) {
    const auto values = dynamic_map(is_signed);
    CHECK(std::ranges::adjacent_find(values, std::greater_equal<>()) == values.end());
    CHECK(values[is_signed ? 127 : 0] == 0);
    CHECK(values[255] == 1);
  }
  CHECK(dynamic_map(true)[0] == doctest::Approx(-0.99296875));
}

}  // namespace zeroth::dynamic_map_test
