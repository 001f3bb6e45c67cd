#include "data/samples/sample_mixture.h"

#include <doctest/doctest.h>

#include <cmath>

namespace zeroth::data::sample_mixture_test {

TEST_CASE("Of the first n samples each part has its share within one, whatever n is") {
  const std::vector<std::vector<double>> weights = {
      {0.7, 0.3},         {1, 1, 1}, {5}, {0.01, 0.99}, {0.5, 0.25, 0.15, 0.1},
      {3, 2, 2, 1, 1, 1}, {1e-3, 2}};
  for (const std::vector<double>& all : weights) {
    std::vector<MixturePart> parts;
    double sum = 0;
    for (const double weight : all) {
      parts.push_back({.size = 1000, .weight = weight});
      sum += weight;
    }
    const SampleMixture mixture(parts);
    std::vector<int64_t> taken(all.size());
    for (int64_t n = 0; n < 5000; ++n) {
      const auto [part, index] = mixture.at(n);
      REQUIRE(index == taken[part]);
      ++taken[part];
      for (size_t i = 0; i < all.size(); ++i) {
        const double share = all[i] / sum * static_cast<double>(n + 1);
        REQUIRE(std::abs(static_cast<double>(taken[i]) - share) < 1);
      }
    }
  }
}

TEST_CASE("An epoch ends when the first part at its share is used up") {
  const SampleMixture mixture({{.size = 100, .weight = 0.7}, {.size = 90, .weight = 0.3}});
  int64_t first = 0, second = 0;
  for (int64_t i = 0; i < mixture.epoch_size(); ++i) {
    const auto [part, index] = mixture.at(i);
    (part == 0 ? first : second) += 1;
    CHECK(index < (part == 0 ? 100 : 90));
  }
  CHECK(first == 100);
  CHECK(std::abs(static_cast<double>(second) - 300.0 / 7) < 1);
  CHECK(mixture.at(mixture.epoch_size()).part == 0);  // which it does not have
  CHECK(SampleMixture({{.size = 5, .weight = 2}}).epoch_size() == 5);
}

}  // namespace zeroth::data::sample_mixture_test
