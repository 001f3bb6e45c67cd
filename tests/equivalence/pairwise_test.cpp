#include "tests/equivalence/pairwise.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

namespace zeroth::equivalence::pairwise_test {
namespace {

bool are_compatible(const std::vector<Combination>& rows, size_t i, size_t a, size_t j, size_t b) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Combination& row) { return row[i] == a && row[j] == b; });
}

}  // namespace

TEST_CASE("all combinations are told once, the last factor first") {
  const std::vector<Combination> all = combinations(std::array<size_t, 2>{2, 3});
  CHECK(all == std::vector<Combination>{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}});
  CHECK(combinations({}) == std::vector<Combination>{{}});
}

TEST_CASE("every two values meet in a small part of all combinations") {
  const std::vector<Combination> rows = pairwise(combinations(std::array<size_t, 3>{4, 3, 5}));
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < 3; ++b) CHECK(are_compatible(rows, 0, a, 1, b));
    for (size_t c = 0; c < 5; ++c) CHECK(are_compatible(rows, 0, a, 2, c));
  }
  for (size_t b = 0; b < 3; ++b) {
    for (size_t c = 0; c < 5; ++c) CHECK(are_compatible(rows, 1, b, 2, c));
  }
  CHECK(rows.size() >= 20);
  CHECK(rows.size() <= 26);
}

TEST_CASE("values that never meet are not asked for") {
  std::vector<Combination> all = combinations(std::array<size_t, 3>{3, 3, 2});
  std::erase_if(all, [](const Combination& row) { return row[0] == 2 && row[1] == 2; });
  const std::vector<Combination> rows = pairwise(all);
  CHECK_FALSE(are_compatible(rows, 0, 2, 1, 2));
  CHECK(are_compatible(rows, 0, 2, 1, 1));
  CHECK(pairwise({}).empty());
}

TEST_CASE("every three values meet in a covering of strength three") {
  std::vector<Combination> all = combinations(std::array<size_t, 5>{3, 2, 4, 2, 3});
  std::erase_if(all, [](const Combination& row) { return row[0] == 2 && row[4] == 1; });
  const std::vector<Combination> rows = covering(all, 3);
  for (const Combination& one : all) {
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < i; ++j) {
        for (size_t k = 0; k < j; ++k) {
          CHECK(std::any_of(rows.begin(), rows.end(), [&](const Combination& row) {
            return row[i] == one[i] && row[j] == one[j] && row[k] == one[k];
          }));
        }
      }
    }
  }
  CHECK(rows.size() >= 4 * 3 * 3);
  CHECK(rows.size() <= 60);
  CHECK(covering(all, 5).size() == all.size());
}

TEST_CASE("combinations are drawn by a seed, each at most once") {
  std::vector<Combination> all = combinations(std::array<size_t, 2>{10, 10});
  std::vector<Combination> some = drawn(all, 30, 1);
  CHECK(some.size() == 30);
  CHECK(some == drawn(all, 30, 1));
  CHECK(some != drawn(all, 30, 2));
  some = drawn(all, 1000, 1);
  CHECK(some != all);
  std::sort(some.begin(), some.end());
  CHECK(some == all);
}

}  // namespace zeroth::equivalence::pairwise_test
