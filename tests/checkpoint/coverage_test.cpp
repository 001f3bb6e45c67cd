#include "checkpoint/verify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/checkpoint/stored.h"

namespace zeroth::checkpoint::coverage_test {
namespace {

TensorChunk part(const TensorSlice& slice, const ElementRange& range) {
  return {"w", "master", "F32", slice, range};
}

std::vector<std::string> errors(const std::vector<TensorChunk>& chunks,
                                const std::vector<StoredState>& expected = {}) {
  std::vector<StoredFile> files;
  for (const TensorChunk& chunk : chunks) {
    files.push_back({"file-" + std::to_string(files.size()), 0, 0, {{chunk, 0, 0}}});
  }
  return coverage_errors(files, expected);
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("boxes and ranges that make up a tensor are complete") {
  const Shape shape{4, 6};
  const auto left = TensorSlice::between(shape, {0, 0}, {4, 3}),
             right = TensorSlice::between(shape, {0, 3}, {4, 6}), whole = TensorSlice::full(shape);
  CHECK(errors({part(whole, {0, 24})}) == Lines{});
  CHECK(errors({part(whole, {7, 24}), part(whole, {0, 7})}) == Lines{});
  CHECK(errors({part(left, {0, 12}), part(right, {5, 12}), part(right, {0, 5})}) == Lines{});
  CHECK(errors({part({}, {0, 1})}) == Lines{});
  CHECK(errors({part(TensorSlice::full({0, 3}), {0, 0})}) == Lines{});
}

TEST_CASE("pieces without elements are no hole and no overlap") {
  const Shape shape{12};
  const TensorSlice whole = TensorSlice::full(shape);
  CHECK(errors({part(whole, {0, 5}), part(whole, {5, 5}), part(whole, {5, 12}),
                part(whole, {12, 12})}) == Lines{});
}

TEST_CASE("a hole is told with the first element that is missing") {
  const Shape shape{4, 6};
  const auto whole = TensorSlice::full(shape), right = TensorSlice::between(shape, {0, 3}, {4, 6});
  CHECK(errors({part(whole, {0, 7}), part(whole, {8, 24})}) ==
        Lines{"master of w: its pieces hold 23 of 24 elements of [4, 6]; the first missing one is "
              "7"});
  CHECK(errors({part(right, {0, 12})}) ==
        Lines{"master of w: its pieces hold 12 of 24 elements of [4, 6]; the first missing one is "
              "0"});
}

TEST_CASE("two pieces with one element are told with their files") {
  const Shape shape{4, 6};
  const auto whole = TensorSlice::full(shape), left = TensorSlice::between(shape, {0, 0}, {4, 3}),
             middle = TensorSlice::between(shape, {1, 2}, {2, 5});
  CHECK(errors({part(whole, {0, 8}), part(whole, {7, 24})}) ==
        Lines{"master of w: [0:4,0:6](0:8) in file-0 and [0:4,0:6](7:24) in file-1 have elements "
              "in common"});
  CHECK(errors({part(middle, {0, 3}), part(left, {0, 12})}).size() == 1);
  CHECK(errors({part(whole, {0, 24}), part(whole, {0, 24})}).size() == 1);
  // The boxes meet, the ranges do not.
  CHECK(errors({part(middle, {1, 3}), part(left, {0, 12})})[0].find("hold 14") !=
        std::string::npos);
}

TEST_CASE("pieces of one state with another shape or dtype are told") {
  TensorChunk other = part(TensorSlice::full({4, 6}), {0, 24});
  other.dtype = "BF16";
  CHECK(errors({part(TensorSlice::full({4, 6}), {0, 12}), other}) ==
        Lines{"master of w: F32 [4, 6] in file-0, BF16 [4, 6] in file-1"});
}

TEST_CASE("what the model has and no rank wrote is told, and what no model has") {
  const Shape shape{6};
  const TensorChunk master = part(TensorSlice::full(shape), {0, 6});
  const std::vector<StoredState> model = {{"w", "master", "F32", shape},
                                          {"w", "exp_avg", "F32", shape},
                                          {"nothing", "master", "F32", {0}}};
  CHECK(errors({master}, model) == Lines{"exp_avg of w: no rank has a piece of it"});
  TensorChunk more = master;
  more.state = "momentum";
  CHECK(errors({more}, {{"w", "master", "F32", shape}}) ==
        Lines{"master of w: no rank has a piece of it",
              "momentum of w: [0:6](0:6) in file-0 is not part of the model"});
  CHECK(errors({master}, {{"w", "master", "F32", {2, 3}}}) ==
        Lines{"master of w: F32 [6], expected F32 [2, 3]"});
}

TEST_CASE("any pieces of a small tensor are judged as by counting each element") {
  std::mt19937 random(5);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  int good = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const Shape shape{1 + below(3), 1 + below(3), 1 + below(3)};
    std::vector<TensorChunk> chunks;
    std::vector<int> counts(static_cast<size_t>(shape[0] * shape[1] * shape[2]), 0);
    for (int64_t i = 0, number = 1 + below(4); i < number; ++i) {
      TensorSlice box = TensorSlice::full(shape);
      const auto dimension = static_cast<size_t>(below(3));
      box.offsets[dimension] = below(shape[dimension]);
      box.sizes[dimension] = 1 + below(shape[dimension] - box.offsets[dimension]);
      const int64_t begin = below(box.elements());
      chunks.push_back(part(box, {begin, begin + 1 + below(box.elements() - begin)}));
      for (int64_t e = chunks.back().range.begin; e < chunks.back().range.end; ++e) {
        ++counts[static_cast<size_t>(global_of(box, e))];
      }
    }
    const auto fault = std::find_if(counts.begin(), counts.end(), [](int n) { return n != 1; });
    const Lines said = errors(chunks);
    REQUIRE(said.size() == (fault == counts.end() ? 0 : 1));
    if (fault == counts.end()) {
      ++good;
    } else if (*fault == 0) {
      REQUIRE(said[0].ends_with(fmt::format("first missing one is {}", fault - counts.begin())));
    } else {
      REQUIRE(said[0].ends_with("have elements in common"));
    }
  }
  CHECK(good > 20);
}

TEST_CASE("verify_cost: columns, single elements and one huge column are judged in one look each") {
  constexpr int64_t kColumns = 20'000;
  std::vector<TensorChunk> columns, elements;
  for (int64_t i = 0; i < kColumns; ++i) {
    columns.push_back(part({{2, kColumns}, {0, i}, {2, 1}}, {0, 2}));
    elements.push_back(part({{kColumns}, {0}, {kColumns}}, {i, i + 1}));
  }
  CHECK(errors(columns) == Lines{});
  CHECK(errors(elements) == Lines{});
  columns.pop_back();
  CHECK(errors(columns)[0].ends_with("the first missing one is 19999"));
  columns.push_back(columns[7]);
  CHECK(errors(columns)[0].ends_with("[0:2,7:8](0:2) in file-19999 have elements in common"));
  constexpr int64_t kRows = int64_t{1} << 40;
  CHECK(errors({part({{kRows, 2}, {0, 0}, {kRows, 1}}, {0, kRows})})[0].ends_with(
      "its pieces hold 1099511627776 of 2199023255552 elements of [1099511627776, 2]; the first "
      "missing one is 1"));
}

}  // namespace zeroth::checkpoint::coverage_test
