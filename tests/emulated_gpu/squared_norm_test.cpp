// The kernels of the gradient's norm beside the sum of squares.
#include "optim/gpu/kernels.h"

#include <doctest/doctest.h>

#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::squared_norm_test {
namespace {

using optim::kernel::Format;
using optim::kernel::kNormChunk;
using optim::kernel::NormArrays;
using optim::kernel::sum_parts;

constexpr int64_t kFar = int64_t{1} << 31;

// Of a thread's few squares in fp32; from there on sums are in fp64.
constexpr double kSlack = 12 * kFloatStep;

template <typename T>
void expect_part(Shape& shape, const T* from, int64_t count, int64_t piece, double part) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += wide(from[i]) * wide(from[i]);
  shape.expect("parts", piece, part, sum, sum * kSlack);
}

void add_array(NormArrays& arrays, const void* at, int64_t count) {
  arrays.at[arrays.arrays] = at;
  arrays.count[arrays.arrays] = count;
  const int64_t pieces = (count + kNormChunk - 1) / kNormChunk;
  arrays.first_chunk[arrays.arrays + 1] = arrays.first_chunk[arrays.arrays] + pieces;
  ++arrays.arrays;
}

int64_t pieces_of(const NormArrays& arrays) {
  return arrays.first_chunk[arrays.arrays];
}

template <typename T>
void square_far(Shape& shape, Format format) {
  NormArrays arrays = {};
  const auto add = [&](int64_t count, int64_t offset) {
    T* const at = shape.memory.far_array<T>(count + offset) + offset;
    add_array(arrays, at, count);
    return at;
  };
  T* const first = add(kFar + shape.from_to(1, kNormChunk - 1), shape.from_to(0, 9));
  T* const second = add(shape.from_to(1, 1000), 0);
  shape.text = std::to_string(arrays.count[0]) + " elements";
  const int64_t last = arrays.first_chunk[1] - 1, rest = arrays.count[0] - last * kNormChunk;
  shape.fill(first + last * kNormChunk, rest);
  shape.fill(second, arrays.count[1]);
  double* const parts = shape.memory.array<double>(pieces_of(arrays));
  const OnlyBlocks only({static_cast<uint64_t>(last), static_cast<uint64_t>(last + 1)});
  square_chunks(format, arrays, parts, nullptr);
  expect_part(shape, first + last * kNormChunk, rest, last, parts[last]);
  expect_part(shape, second, arrays.count[1], last + 1, parts[last + 1]);
}

template <typename T>
void square(Shape& shape, Format format) {
  if (shape.is_far()) return square_far<T>(shape, format);
  NormArrays arrays = {};
  const int64_t count_of_arrays =
      shape.one_in(30) ? optim::kernel::kMaxNormArrays : shape.from_to(1, 4);
  for (int64_t k = 0; k < count_of_arrays; ++k) {
    const int64_t count = shape.one_in(40)   ? kNormChunk + shape.from_to(-3, 5)
                          : shape.one_in(30) ? shape.from_to(15'000, 40'000)
                          : shape.one_in(3)  ? shape.from_to(0, 40)
                                             : shape.from_to(1, 6000);
    const int64_t offset = shape.offset(shape.one_in(2) ? 16 : sizeof(T));
    T* const at = shape.memory.array<T>(count, offset);
    shape.fill(at, count);
    if (count > 0 && shape.one_in(20)) shape.put_special(at, count);
    add_array(arrays, at, count);
  }
  shape.text =
      std::to_string(arrays.arrays) + " arrays, the first of " + std::to_string(arrays.count[0]);
  double* const parts = shape.memory.array<double>(pieces_of(arrays));
  shape.run([&] { square_chunks(format, arrays, parts, nullptr); },
            {bytes_of(parts, pieces_of(arrays))});
  for (int k = 0; k < arrays.arrays; ++k) {
    const T* const at = static_cast<const T*>(arrays.at[k]);
    for (int64_t begin = 0; begin < arrays.count[k]; begin += kNormChunk) {
      const int64_t piece = arrays.first_chunk[k] + begin / kNormChunk;
      expect_part(shape, at + begin, std::min(kNormChunk, arrays.count[k] - begin), piece,
                  parts[piece]);
    }
  }
}

void sum(Shape& shape) {
  NormArrays arrays = {};
  const int64_t count_of_arrays = shape.from_to(1, 5);
  for (int64_t k = 0; k < count_of_arrays; ++k) {
    add_array(arrays, nullptr, shape.one_in(6) ? 0 : shape.from_to(1, 200) * kNormChunk);
  }
  const int64_t count = pieces_of(arrays);
  double* const parts = shape.memory.array<double>(count, shape.offset(8));
  double* const got = shape.memory.array<double>(arrays.arrays);
  for (int64_t i = 0; i < count; ++i) parts[i] = std::abs(usual_value(shape));
  if (count > 0 && shape.one_in(8)) {
    parts[shape.from_to(0, count - 1)] = shape.one_in(2) ? INFINITY : NAN;
  }
  shape.text = std::to_string(count) + " parts of " + std::to_string(arrays.arrays) + " arrays";
  shape.run([&] { sum_parts(arrays, parts, got, nullptr); }, {bytes_of(got, arrays.arrays)});
  for (int k = 0; k < arrays.arrays; ++k) {
    double expected = 0;
    for (int64_t i = arrays.first_chunk[k]; i < arrays.first_chunk[k + 1]; ++i) {
      expected += parts[i];
    }
    shape.expect("sums", k, got[k], expected, expected * 1e-12);
  }
}

}  // namespace

TEST_CASE("square_kernel gives each piece's sum of squares") {
  using namespace optim::kernel;
  run_shapes({{"fp32", [](Shape& shape) { square<float>(shape, kFp32); }},
              {"bf16", [](Shape& shape) { square<Bf16>(shape, kBf16); }},
              {"fp16", [](Shape& shape) { square<Fp16>(shape, kFp16); }}},
             {"square_kernel"});
}

TEST_CASE("sum_kernel gives the sum of each array's pieces") {
  run_shapes({{"fp64", sum}}, {"sum_kernel"});
}

}  // namespace zeroth::emulated::squared_norm_test
