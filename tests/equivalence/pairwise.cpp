#include "tests/equivalence/pairwise.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sstream>

namespace zeroth::equivalence {
namespace {

// Pairs of factors with a value each, as numbers below size().
class PairNumbers {
 public:
  explicit PairNumbers(const std::vector<Combination>& all) {
    for (const Combination& combination : all) {
      num_factors_ = std::max(num_factors_, combination.size());
      for (const size_t value : combination) num_values_ = std::max(num_values_, value + 1);
    }
  }

  size_t size() const { return num_factors_ * num_factors_ * num_values_ * num_values_; }

  // Calls fn(number) for every pair of the combination.
  template <typename Fn>
  void for_each(const Combination& combination, const Fn& fn) const {
    for (size_t i = 0; i < combination.size(); ++i) {
      for (size_t j = i + 1; j < combination.size(); ++j) {
        fn(((i * num_factors_ + j) * num_values_ + combination[i]) * num_values_ + combination[j]);
      }
    }
  }

 private:
  size_t num_factors_ = 0;
  size_t num_values_ = 0;
};

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
  const PairNumbers numbers(all);
  std::vector<char> missing(numbers.size(), 0);
  for (const Combination& combination : all) {
    numbers.for_each(combination, [&](size_t pair) { missing[pair] = 1; });
  }
  std::vector<Combination> chosen;
  while (true) {
    const Combination* best = nullptr;
    int64_t max_gain = 0;  // missing pairs of the best one
    for (const Combination& combination : all) {
      int64_t gain = 0;
      numbers.for_each(combination, [&](size_t pair) { gain += missing[pair]; });
      if (gain <= max_gain) continue;
      max_gain = gain;
      best = &combination;
    }
    if (best == nullptr) return chosen;
    chosen.push_back(*best);
    numbers.for_each(*best, [&](size_t pair) { missing[pair] = 0; });
  }
}

std::vector<Combination> chosen(const std::vector<Combination>& all,
                                const std::function<bool(const Combination&)>& in_full) {
  const char* full = std::getenv("ZEROTH_TEST_FULL");
  if (full == nullptr) return pairwise(all);
  std::istringstream words(full);
  size_t rows = 0;
  uint64_t seed = 0;
  if (words >> rows >> seed) return drawn(all, rows, seed);
  std::vector<Combination> result = all;
  std::erase_if(result,
                [&](const Combination& combination) { return in_full && !in_full(combination); });
  return result;
}

std::vector<Combination> drawn(std::vector<Combination> all, size_t count, uint64_t seed) {
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(std::min(count, all.size()));
  return all;
}

}  // namespace zeroth::equivalence
