#include "tests/equivalence/pairwise.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

namespace zeroth::equivalence {
namespace {

// Tuples of `strength` factors with a value each, as numbers below size().
class TupleNumbers {
 public:
  TupleNumbers(const std::vector<Combination>& all, size_t strength) : strength_(strength) {
    for (const Combination& combination : all) {
      num_factors_ = std::max(num_factors_, combination.size());
      for (const size_t value : combination) num_values_ = std::max(num_values_, value + 1);
    }
  }

  size_t size() const {
    size_t size = 1;
    for (size_t i = 0; i < strength_; ++i) size *= num_factors_ * num_values_;
    return size;
  }

  // Calls fn(number) for every tuple of the combination.
  template <typename Fn>
  void for_each(const Combination& combination, const Fn& fn) const {
    add_factors(combination, strength_, 0, 0, fn);
  }

 private:
  template <typename Fn>
  void add_factors(const Combination& combination, size_t missing, size_t first, size_t number,
                   const Fn& fn) const {
    if (missing == 0) return fn(number);
    for (size_t i = first; i < combination.size(); ++i) {
      const size_t factor = i * num_values_ + combination[i];
      add_factors(combination, missing - 1, i + 1, number * num_factors_ * num_values_ + factor,
                  fn);
    }
  }

  size_t strength_;
  size_t num_factors_ = 0;
  size_t num_values_ = 0;
};

// Kernels of a lower CPU level (tools/at_cpu_level), or of a GPU, are at stake then, not all
// combinations of strategies.
bool is_held_down_or_on_gpu() {
  return std::getenv("ZEROTH_CPU") != nullptr || std::getenv("ZEROTH_TEST_DEVICE") != nullptr;
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

std::vector<Combination> covering(const std::vector<Combination>& all, size_t strength) {
  const TupleNumbers numbers(all, strength);
  std::vector<char> missing(numbers.size(), 0);
  for (const Combination& combination : all) {
    numbers.for_each(combination, [&](size_t tuple) { missing[tuple] = 1; });
  }
  std::vector<Combination> chosen;
  while (true) {
    const Combination* best = nullptr;
    int64_t max_gain = 0;  // missing tuples of the best one
    for (const Combination& combination : all) {
      int64_t gain = 0;
      numbers.for_each(combination, [&](size_t tuple) { gain += missing[tuple]; });
      if (gain <= max_gain) continue;
      max_gain = gain;
      best = &combination;
    }
    if (best == nullptr) return chosen;
    chosen.push_back(*best);
    numbers.for_each(*best, [&](size_t tuple) { missing[tuple] = 0; });
  }
}

std::vector<Combination> pairwise(const std::vector<Combination>& all) {
  return covering(all, 2);
}

std::vector<Combination> chosen(const std::vector<Combination>& all,
                                const std::function<bool(const Combination&)>& in_full) {
  const char* full = std::getenv("ZEROTH_TEST_FULL");
  if (full == nullptr) return pairwise(all);
  std::istringstream words(full);
  size_t rows = 0;
  uint64_t seed = 0;
  if (words >> rows >> seed) return drawn(all, rows, seed);
  std::vector<Combination> result = covering(all, 3);
  if (!in_full || is_held_down_or_on_gpu()) return result;
  const std::set<Combination> covered(result.begin(), result.end());
  std::copy_if(all.begin(), all.end(), std::back_inserter(result),
               [&](const Combination& one) { return in_full(one) && !covered.contains(one); });
  return result;
}

std::vector<Combination> drawn(std::vector<Combination> all, size_t count, uint64_t seed) {
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(std::min(count, all.size()));
  return all;
}

}  // namespace zeroth::equivalence
