#include <numeric>
#include <set>

#include "data/samples/dataset.h"
#include "data/samples/sample_order.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::dataset_views_test {
namespace {

// Windows of three ids of a file of consecutive ids.
std::unique_ptr<Dataset> windows(const TempFolder& directory, const std::string& name,
                                 uint16_t first, int count) {
  std::vector<uint16_t> ids(static_cast<size_t>(3 * count + 1));
  std::iota(ids.begin(), ids.end(), first);
  return open_dataset(
      {.path = directory.write_numbers<uint16_t>(name, ids), .seq_len = 3, .vocab_size = 1000});
}

int64_t first_token(const Dataset& dataset, int64_t index) {
  std::vector<int64_t> tokens(3), targets(3);
  dataset.fill(index, tokens, targets);
  return tokens.front();
}

}  // namespace

TEST_CASE("Several datasets are one, each sample with its own name") {
  TempFolder directory;
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(windows(directory, "a.bin", 0, 2));
  parts.push_back(windows(directory, "b.bin", 100, 1));
  parts.push_back(windows(directory, "c.bin", 200, 3));
  const auto all = concatenate(std::move(parts));
  REQUIRE(all->size() == 6);
  std::vector<int64_t> firsts;
  for (int64_t i = 0; i < 6; ++i) firsts.push_back(first_token(*all, i));
  CHECK(firsts == std::vector<int64_t>{0, 3, 100, 200, 203, 206});
  CHECK(all->sample_name(2) == (directory / "b.bin").string() + " sample 0");
  CHECK(all->sample_name(5) == (directory / "c.bin").string() + " sample 2");
  CHECK(all->stats().samples == 6);
  CHECK(all->stats().tokens == 18);
  CHECK(all->sample_lengths(2) == std::vector<int64_t>{3});
  CHECK(all->seq_len() == 3);
}

TEST_CASE("Samples are held out by the seed alone, each on one side") {
  TempFolder directory;
  const auto split = [&](uint64_t seed) {
    return split_samples(windows(directory, "a.bin", 0, 50), 10, seed);
  };
  const SplitDataset parts = split(1);
  CHECK(parts.train->size() == 40);
  CHECK(parts.held_out->size() == 10);
  CHECK(parts.train->stats().samples == 40);
  CHECK(parts.held_out->stats().tokens == 30);
  std::set<int64_t> seen;
  std::vector<int64_t> held_out;
  for (int64_t i = 0; i < 40; ++i) seen.insert(first_token(*parts.train, i));
  for (int64_t i = 0; i < 10; ++i) held_out.push_back(first_token(*parts.held_out, i));
  CHECK(std::ranges::is_sorted(held_out));
  seen.insert(held_out.begin(), held_out.end());
  CHECK(seen.size() == 50);
  const SplitDataset again = split(1), other = split(2);
  for (int64_t i = 0; i < 10; ++i) CHECK(first_token(*again.held_out, i) == held_out[i]);
  std::vector<int64_t> others;
  for (int64_t i = 0; i < 10; ++i) others.push_back(first_token(*other.held_out, i));
  CHECK(others != held_out);
  CHECK(split_samples(windows(directory, "a.bin", 0, 5), 0, 1).held_out == nullptr);
  CHECK(split_samples(windows(directory, "a.bin", 0, 5), 5, 1).train == nullptr);
}

TEST_CASE("A mixture's epochs have each part's samples in turn, unused ones first") {
  const auto mixture = std::make_shared<const SampleMixture>(
      std::vector<MixturePart>{{.size = 6, .weight = 2}, {.size = 10, .weight = 1}});
  CHECK(mixture->epoch_size() == 9);  // six of the first part, three of the second
  for (const bool shuffle : {false, true}) {
    const SampleOrder order(16, 5, shuffle, {}, mixture);
    std::vector<int64_t> second;
    for (int64_t epoch = 0; epoch < 10; ++epoch) {
      std::set<int64_t> first;
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t sample = order.at(9 * epoch + i);
        if (sample < 6) first.insert(sample);
        if (sample >= 6) second.push_back(sample);
      }
      CHECK(first.size() == 6);
    }
    REQUIRE(second.size() == 30);
    for (int64_t pass = 0; pass < 3; ++pass)
      CHECK(std::set<int64_t>(second.begin() + 10 * pass, second.begin() + 10 * pass + 10).size() ==
            10);
  }
}

}  // namespace zeroth::data::dataset_views_test
