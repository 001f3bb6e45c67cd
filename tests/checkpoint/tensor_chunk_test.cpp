#include "checkpoint/tensor_chunk.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "base/error.h"

namespace zeroth::checkpoint::tensor_chunk_test {
namespace {

Shape random_shape(std::mt19937& random, size_t dimensions) {
  Shape shape(dimensions);
  for (int64_t& extent : shape) extent = 1 + static_cast<int64_t>(random() % 5);
  return shape;
}

TensorSlice random_box(std::mt19937& random, const Shape& shape) {
  TensorSlice box = TensorSlice::full(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (random() % 2 == 0) continue;
    box.offsets[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[i]));
    const auto rest = static_cast<uint64_t>(shape[i] - box.offsets[i]);
    box.sizes[i] = 1 + static_cast<int64_t>(random() % rest);
  }
  return box;
}

ElementRange random_range(std::mt19937& random, const TensorSlice& box) {
  const auto all = static_cast<uint64_t>(box.elements());
  const auto begin = static_cast<int64_t>(random() % (all + 1));
  const auto rest = all - static_cast<uint64_t>(begin);
  return {begin, begin + static_cast<int64_t>(random() % (rest + 1))};
}

// Element by element: global index of each element of a range.
std::vector<int64_t> globals(const TensorSlice& box, const ElementRange& range) {
  std::vector<int64_t> found;
  for (int64_t element = range.begin; element < range.end; ++element) {
    int64_t rest = element, global = 0, stride = 1;
    for (size_t i = box.shape.size(); i-- > 0;) {
      const int64_t extent = box.sizes[i];
      global += (box.offsets[i] + rest % extent) * stride;
      rest /= extent;
      stride *= box.shape[i];
    }
    found.push_back(global);
  }
  return found;
}

}  // namespace

TEST_CASE("what two parts have in common is found as by looking at each element") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 4000; ++trial) {
    const Shape shape = random_shape(random, random() % 5);
    const TensorSlice wanted_box = random_box(random, shape),
                      stored_box = random_box(random, shape);
    const ElementRange wanted = random_range(random, wanted_box);
    const ElementRange stored = random_range(random, stored_box);
    const auto left = globals(wanted_box, wanted);
    const auto right = globals(stored_box, stored);
    std::set<std::pair<int64_t, int64_t>> expected, found;
    for (size_t i = 0; i < left.size(); ++i) {
      for (size_t j = 0; j < right.size(); ++j) {
        if (left[i] == right[j]) expected.insert({i, j});
      }
    }
    int64_t before = 0;
    for (const ElementRun& run : common_element_runs(wanted_box, wanted, stored_box, stored)) {
      REQUIRE(run.wanted >= before);  // in order
      before = run.wanted + run.count;
      for (int64_t i = 0; i < run.count; ++i) found.insert({run.wanted + i, run.stored + i});
    }
    REQUIRE(found == expected);
  }
}

TEST_CASE("parts of one box are one run, whatever its shape") {
  const TensorSlice box = TensorSlice::full({128'256, 4096});
  CHECK(common_element_runs(box, {1000, 5000}, box, {3000, 9000}) ==
        std::vector<ElementRun>{{2000, 0, 2000}});
  CHECK(common_element_runs(box, {0, 10}, box, {10, 20}).empty());
  const auto rows = TensorSlice::between(box.shape, {10, 0}, {20, 4096});
  CHECK(common_element_runs(box, {0, box.elements()}, rows, {0, rows.elements()}) ==
        std::vector<ElementRun>{{40'960, 0, 40'960}});
  const auto columns = TensorSlice::between(box.shape, {0, 0}, {128'256, 2048});
  const auto runs = common_element_runs(box, {4096, 12'288}, columns, {0, columns.elements()});
  CHECK(runs == std::vector<ElementRun>{{0, 2048, 2048}, {4096, 4096, 2048}});
}

TEST_CASE("a scalar is one element of a box without dimensions") {
  const TensorChunk step = TensorChunk::full("model", "step", "I64", {});
  CHECK(step.elements() == 1);
  CHECK(step.bytes() == 8);
  CHECK(chunk_key(step) == "model|step||0:1");
  CHECK(to_string(step.slice, step.range) == "[](0:1)");
  CHECK(common_element_runs(step.slice, step.range, step.slice, step.range) ==
        std::vector<ElementRun>{{0, 0, 1}});
}

TEST_CASE("a piece is known by tensor, state, box and range") {
  TensorChunk chunk = TensorChunk::full("w", "exp_avg", "F32", {64, 256});
  CHECK(chunk_key(chunk) == "w|exp_avg|0:64,0:256|0:16384");
  chunk.slice = TensorSlice::between({64, 256}, {0, 128}, {64, 256});
  chunk.range = {10, 4096};
  CHECK(chunk_key(chunk) == "w|exp_avg|0:64,128:256|10:4096");
  CHECK(to_string(chunk.slice, chunk.range) == "[0:64,128:256](10:4096)");
  CHECK(chunk.bytes() == 4086 * 4);
}

TEST_CASE("what is no piece is told") {
  const auto message = [](auto change) {
    TensorChunk chunk = TensorChunk::full("w", "master", "F32", {4, 6});
    change(chunk);
    return validation_error(chunk);
  };
  CHECK(message([](TensorChunk&) {}) == "");
  CHECK(message([](TensorChunk& p) { p.tensor = ""; }) == "a tensor without a name");
  CHECK(message([](TensorChunk& p) { p.state = ""; }) == "a state without a name");
  CHECK(message([](TensorChunk& p) { p.dtype = "F33"; }) == "unknown dtype F33");
  CHECK(message([](TensorChunk& p) { p.slice.shape = {-1, 6}; }) == "invalid shape [-1, 6]");
  CHECK(message([](TensorChunk& p) {
          p.slice.shape = {int64_t{1} << 40, int64_t{1} << 40};
        }) == "invalid shape [1099511627776, 1099511627776]");
  CHECK(message([](TensorChunk& p) { p.slice.sizes = {4}; }) ==
        "its slice has 2 and 1 dimensions, the tensor 2");
  CHECK(message([](TensorChunk& p) {
          p.slice.sizes = {4, 7};
        }) == "its slice 0:7 is invalid for dimension 1 of size 6");
  CHECK(message([](TensorChunk& p) {
          p.slice = TensorSlice::between({4, 6}, {-1, 0}, {4, 6});
        }) == "its slice -1:4 is invalid for dimension 0 of size 4");
  CHECK(message([](TensorChunk& p) {
          p.slice = TensorSlice::between({4, 6}, {3, 0}, {2, 6});
        }) == "its slice 3:2 is invalid for dimension 0 of size 4");
  CHECK(message([](TensorChunk& p) {
          p.range = {0, 25};
        }) == "its range 0:25 is not within the 24 elements of its slice");
  CHECK(message([](TensorChunk& p) {
          p.range = {5, 4};
        }) == "its range 5:4 is not within the 24 elements of its slice");
  CHECK(message([](TensorChunk& p) {
          p.range = {-1, 4};
        }) == "its range -1:4 is not within the 24 elements of its slice");
}

TEST_CASE("the number of elements is told only where no machine overflows") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({3, 4}) == 12);
  CHECK(element_count({3, 0, 5}) == 0);
  CHECK(!element_count({0, int64_t{1} << 62, int64_t{1} << 62}));
  CHECK(!element_count({int64_t{1} << 60}));
  CHECK(element_count({(int64_t{1} << 60) - 1}));
  CHECK(!element_count({2, -3}));
}

}  // namespace zeroth::checkpoint::tensor_chunk_test
