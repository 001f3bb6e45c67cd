#include "data/tokenizer/pair_table.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

namespace zeroth::data::pair_table_test {

TEST_CASE("A table of pairs holds what was set last, and nothing else") {
  constexpr uint32_t kSide = 60;
  PairTable<int> table(kSide * kSide);
  std::map<std::pair<uint32_t, uint32_t>, int> wanted;
  for (int i = 0; i < 5000; ++i) {
    const uint32_t left = i * 7919 % kSide, right = i * 104'729 / 3 % kSide;
    table.set(left << 14, right, i);
    wanted[{left, right}] = i;
  }
  for (uint32_t left = 0; left < kSide; ++left) {
    for (uint32_t right = 0; right < kSide; ++right) {
      const int* const found = table.find(left << 14, right);
      const auto known = wanted.find({left, right});
      REQUIRE((found != nullptr) == (known != wanted.end()));
      if (found != nullptr) REQUIRE(*found == known->second);
    }
  }
  CHECK(PairTable<int>().find(0, 0) == nullptr);
}

}  // namespace zeroth::data::pair_table_test
