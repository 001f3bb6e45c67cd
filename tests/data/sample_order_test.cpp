#include "data/samples/sample_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace zeroth::data::sample_order_test {

namespace {

std::vector<int64_t> epoch(const SampleOrder& order, int64_t num_samples, int64_t index) {
  std::vector<int64_t> samples(num_samples);
  for (int64_t i = 0; i < num_samples; ++i) samples[i] = order.at(index * num_samples + i);
  return samples;
}

std::vector<int64_t> iota(int64_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

TEST_CASE("Each shuffled epoch holds every sample once") {
  std::vector<int64_t> sizes = iota(70);
  sizes.erase(sizes.begin());
  for (const int64_t n : {127, 128, 129, 1000, 4096, 4097, 100003}) sizes.push_back(n);
  for (const int64_t n : sizes) {
    const SampleOrder order(n, 42, true);
    for (const int64_t e : {0, 1, 7}) {
      auto samples = epoch(order, n, e);
      std::sort(samples.begin(), samples.end());
      CHECK(samples == iota(n));
    }
  }
}

TEST_CASE("Epochs and seeds differ, equal ones repeat") {
  const SampleOrder order(1000, 42, true);
  CHECK(epoch(order, 1000, 0) != epoch(order, 1000, 1));
  CHECK(epoch(order, 1000, 0) != iota(1000));
  CHECK(epoch(order, 1000, 3) == epoch(SampleOrder(1000, 42, true), 1000, 3));
  CHECK(epoch(order, 1000, 0) != epoch(SampleOrder(1000, 43, true), 1000, 0));
}

TEST_CASE("Every sample comes about equally often to every place") {
  constexpr int64_t kSamples = 10;
  constexpr int kSeeds = 5000;
  std::array<std::array<int, kSamples>, kSamples> count{};
  for (int seed = 0; seed < kSeeds; ++seed) {
    const SampleOrder order(kSamples, static_cast<uint64_t>(seed), true);
    for (int64_t i = 0; i < kSamples; ++i) ++count[i][order.at(i)];
  }
  for (const auto& place : count) {
    for (const int times : place) {
      CHECK(times > 380);  // 500 expected, 5.7 standard deviations
      CHECK(times < 620);
    }
  }
}

TEST_CASE("Without shuffling, step s takes samples s*B .. s*B+B-1 and starts again at the end") {
  const SampleOrder order(10, 42, false);
  CHECK(order.samples(0, 4) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(order.samples(8, 4) == std::vector<int64_t>{8, 9, 0, 1});
  CHECK(order.samples(0, 25).at(24) == 4);
}

TEST_CASE("A batch is the order at its positions, so any step can be asked for first") {
  const SampleOrder order(100, 7, true);
  const auto batch = order.samples(120, 24);
  for (int64_t i = 0; i < 24; ++i) CHECK(batch[i] == order.at(5 * 24 + i));
}

TEST_CASE("From its end on, an order has no samples") {
  const SampleOrder order(3, 42, false, {.end = 5});
  CHECK(order.samples(0, 4) == std::vector<int64_t>{0, 1, 2, 0});
  CHECK(order.samples(4, 4) == std::vector<int64_t>{1, kNoSample, kNoSample, kNoSample});
}

TEST_CASE("An epoch that ends early leaves other samples out each time") {
  const SampleOrder plain(10, 42, false, {.per_epoch = 8});
  CHECK(plain.samples(4, 4) == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(plain.samples(8, 4) == std::vector<int64_t>{0, 1, 2, 3});
  const SampleOrder shuffled(10, 42, true, {.per_epoch = 8});
  std::set<int64_t> seen;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::set<int64_t> in_epoch;
    for (int64_t i = 0; i < 8; ++i) in_epoch.insert(shuffled.at(epoch * 8 + i));
    CHECK(in_epoch.size() == 8);
    seen.merge(in_epoch);
  }
  CHECK(seen.size() == 10);
}

TEST_CASE("An epoch that takes whole batches has no samples at the end of its last one") {
  const SampleOrder order(10, 42, false, {.positions = 12});
  CHECK(order.samples(8, 4) == std::vector<int64_t>{8, 9, kNoSample, kNoSample});
  CHECK(order.samples(12, 4) == std::vector<int64_t>{0, 1, 2, 3});
  const SampleOrder shuffled(10, 42, true, {.positions = 12});
  std::set<int64_t> in_epoch;
  for (int64_t i = 0; i < 10; ++i) in_epoch.insert(shuffled.at(12 + i));
  CHECK(in_epoch.size() == 10);
  CHECK(shuffled.at(22) == kNoSample);
}

TEST_CASE("A sequential pass fills its last batch with rows of no sample") {
  const SampleOrder order(5, 0, false, {.end = 5});
  CHECK(order.samples(0, 3) == std::vector<int64_t>{0, 1, 2});
  CHECK(order.samples(3, 3) == std::vector<int64_t>{3, 4, kNoSample});
}

TEST_CASE("Groups by length have the samples of their positions, the longest first") {
  const auto length = [](int64_t sample) { return sample * 7 % 10; };
  const SampleOrder plain(25, 42, true, {.positions = 28});
  const SampleOrder grouped(25, 42, true, {.positions = 28}, nullptr,
                            {.positions = 8, .length = length});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t first = 0; first < 25; first += 8) {
      std::multiset<int64_t> own, expected;
      int64_t before = 10;
      for (int64_t i = first; i < std::min<int64_t>(first + 8, 25); ++i) {
        const int64_t sample = grouped.at(28 * epoch + i);
        CHECK(length(sample) <= before);
        before = length(sample);
        own.insert(sample);
        expected.insert(plain.at(28 * epoch + i));
      }
      CHECK(own == expected);
    }
    CHECK(grouped.at(28 * epoch + 25) == kNoSample);
  }
  const int64_t middle = grouped.at(31);  // whatever was asked for before
  grouped.at(3);
  CHECK(grouped.at(31) == middle);
}

TEST_CASE("Seeds of samples do not repeat within a run") {
  std::set<uint64_t> seeds;
  for (int64_t step = 0; step < 200; ++step) {
    for (int64_t i = 0; i < 64; ++i) seeds.insert(sample_seed(42, step, i));
  }
  CHECK(seeds.size() == 200 * 64);
  CHECK(sample_seed(42, 1, 2) == sample_seed(42, 1, 2));
  CHECK(sample_seed(42, 1, 2) != sample_seed(43, 1, 2));
}

}  // namespace zeroth::data::sample_order_test
