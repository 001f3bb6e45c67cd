#include "tests/equivalence/pairwise.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <utility>

namespace zeroth::equivalence {
namespace {

// Two factors with a value each.
using Pair = std::array<size_t, 4>;

std::vector<Pair> pairs_of(const Combination& combination) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < combination.size(); ++i) {
    for (size_t j = i + 1; j < combination.size(); ++j) {
      pairs.push_back({i, combination[i], j, combination[j]});
    }
  }
  return pairs;
}

}  // namespace

std::vector<Combination> combinations(std::span<const size_t> counts) {
  std::vector<Combination> all = {{}};
  for (const size_t count : counts) {
    std::vector<Combination> longer;
    for (const Combination& combination : all) {
      for (size_t value = 0; value < count; ++value) {
        longer.push_back(combination);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::vector<Combination> pairwise(const std::vector<Combination>& all) {
  std::set<Pair> missing;
  for (const Combination& combination : all) {
    for (const Pair& pair : pairs_of(combination)) missing.insert(pair);
  }
  const auto gain = [&](const Combination& combination) {
    const std::vector<Pair> pairs = pairs_of(combination);
    return std::count_if(pairs.begin(), pairs.end(),
                         [&](const Pair& pair) { return missing.count(pair) > 0; });
  };
  std::vector<Combination> chosen;
  while (!missing.empty()) {
    chosen.push_back(*std::max_element(
        all.begin(), all.end(),
        [&](const Combination& a, const Combination& b) { return gain(a) < gain(b); }));
    for (const Pair& pair : pairs_of(chosen.back())) missing.erase(pair);
  }
  return chosen;
}

std::vector<Combination> drawn(std::vector<Combination> all, size_t count, uint64_t seed) {
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(std::min(count, all.size()));
  return all;
}

}  // namespace zeroth::equivalence
