#include <set>

#include "data/samples/batch.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::packing_test {
namespace {

// Samples of these lengths: token i of sample s is 100 * s + i, and its target the next one.
class Numbered : public Dataset {
 public:
  Numbered(std::vector<int64_t> lengths, int64_t seq_len)
      : lengths_(std::move(lengths)), seq_len_(seq_len) {}

  int64_t size() const override { return std::ssize(lengths_); }
  int64_t seq_len() const override { return seq_len_; }
  int64_t length(int64_t index) const override { return lengths_.at(index); }
  void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
    std::ranges::fill(tokens, 7);
    std::ranges::fill(targets, kIgnoreIndex);
    for (int64_t i = 0; i < length(index); ++i) {
      tokens[i] = 100 * index + i;
      targets[i] = tokens[i] + 1;
    }
  }
  std::string sample_name(int64_t index) const override { return fmt::format("s:{}", index); }
  DatasetStats stats() const override {
    DatasetStats stats{{.fields = "text"}};
    stats.samples = size();
    return stats;
  }

 private:
  std::vector<int64_t> lengths_;
  int64_t seq_len_;
};

std::vector<int64_t> drawn_lengths(size_t count, int64_t longest) {
  std::vector<int64_t> lengths;
  uint32_t state = 1;
  while (lengths.size() < count) {
    state = state * 1664525 + 1013904223;
    lengths.push_back(1 + (state >> 8) % longest);
  }
  return lengths;
}

std::unique_ptr<Dataset> packed(std::vector<int64_t> lengths, int64_t seq_len) {
  return pack_samples(std::make_unique<Numbered>(std::move(lengths), seq_len));
}

}  // namespace

TEST_CASE("A row has whole samples, each with its own inputs and targets, and padding behind") {
  const auto rows = packed({3, 5, 2}, 6);
  REQUIRE(rows->size() == 2);
  CHECK(rows->sample_lengths(0) == std::vector<int64_t>{5});
  CHECK(rows->sample_lengths(1) == std::vector<int64_t>{3, 2});
  CHECK(rows->length(1) == 5);
  CHECK(rows->sample_name(0) == "s:1");
  CHECK(rows->sample_name(1) == "s:0 and 1 sample packed with it");
  std::vector<int64_t> tokens(6), targets(6);
  rows->fill(1, tokens, targets);
  CHECK(tokens == std::vector<int64_t>{0, 1, 2, 200, 201, 7});
  CHECK(targets == std::vector<int64_t>{1, 2, 3, 201, 202, kIgnoreIndex});
  CHECK(rows->stats().rows == 2);
  CHECK(rows->stats().samples == 3);
  CHECK(rows->stats().fields == "text|packed");
}

TEST_CASE("Each sample is in one row, no row is too long, and hardly anything stays empty") {
  const std::vector<int64_t> lengths = drawn_lengths(100'000, 400);  // more than one group
  const auto rows = packed(lengths, 1024);
  int64_t samples = 0, positions = 0;
  std::multiset<int64_t> seen;
  for (int64_t row = 0; row < rows->size(); ++row) {
    const std::vector<int64_t> own = rows->sample_lengths(row);
    samples += std::ssize(own);
    positions += rows->length(row);
    CHECK(rows->length(row) <= 1024);
    seen.insert(own.begin(), own.end());
  }
  CHECK(samples == std::ssize(lengths));
  CHECK(seen == std::multiset<int64_t>(lengths.begin(), lengths.end()));
  CHECK(static_cast<double>(positions) > 0.99 * 1024 * static_cast<double>(rows->size()));
}

TEST_CASE("Rows are a function of the lengths alone") {
  const std::vector<int64_t> lengths = drawn_lengths(1000, 100);
  const auto once = packed(lengths, 128), again = packed(lengths, 128);
  REQUIRE(once->size() == again->size());
  for (int64_t row = 0; row < once->size(); ++row)
    CHECK(once->sample_name(row) == again->sample_name(row));
}

TEST_CASE("A batch says where each token's sample begins, unless each row is one sample") {
  const auto rows = packed({3, 5, 2}, 6);
  const CollatedBatch batch = collate(*rows, std::vector<int64_t>{0, 1, kNoSample});
  CHECK(batch.length == 6);
  const std::vector<int64_t> begins = {0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 0, 0, 0, 0, 0, 0};
  CHECK(batch.first_keys == begins);
  CHECK(collate(*rows, std::vector<int64_t>{0}).first_keys.empty());
}

}  // namespace zeroth::data::packing_test
