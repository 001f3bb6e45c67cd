// The kernel of weights in NF4 beside its formula.
#include <doctest/doctest.h>

#include "model/kernels/gpu/fused.h"
#include "tests/emulated_gpu/emulation.h"
#include "tests/emulated_gpu/shapes.h"

namespace zeroth::emulated::nf4_test {
namespace {

using model::gpu::ElementType;

constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kThreads = 256;             // of a block, each with one vector
constexpr int64_t kBlock = 64, kGroup = 256;  // weights of a scale, scales of a group

int64_t blocks_of(int64_t count) {
  return (count + kBlock - 1) / kBlock;
}

void fill_bytes(Shape& shape, uint8_t* bytes, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) bytes[i] = static_cast<uint8_t>(shape.from_to(0, 255));
}

// Scales as bytes of fp32, or in 8 bits as those of a slice of a weight.
struct Scales {
  uint8_t* absmax = nullptr;
  float* nested = nullptr;  // the mean last
  int64_t groups = 0;
  int64_t first = 0, per_row = 1, row_step = 1;

  double at(const model::gpu::DequantizeNf4& call, int64_t block) const {
    if (nested == nullptr) return reinterpret_cast<const float*>(absmax)[block];
    const int64_t in_full = first + block / per_row * row_step + block % per_row;
    const float product = call.absmax_map[absmax[block]] * nested[in_full / kGroup];
    return product + nested[groups];
  }
};

Scales draw_scales(Shape& shape, int64_t count) {
  Scales scales;
  const int64_t blocks = blocks_of(count);
  if (shape.is_far() || shape.one_in(2)) {
    float* const absmax = shape.is_far() ? shape.memory.far_array<float>(blocks)
                                         : shape.memory.array<float>(blocks, shape.offset(4));
    if (!shape.is_far()) shape.fill(absmax, blocks);
    scales.absmax = reinterpret_cast<uint8_t*>(absmax);
    return scales;
  }
  scales.per_row = shape.from_to(1, blocks);
  scales.row_step = scales.per_row + shape.from_to(0, 300);
  scales.first = shape.from_to(0, 600);
  const int64_t last = scales.first + blocks / scales.per_row * scales.row_step + scales.per_row;
  scales.groups = last / kGroup + 1;
  scales.absmax = shape.memory.array<uint8_t>(blocks, shape.offset(1));
  fill_bytes(shape, scales.absmax, 0, blocks);
  scales.nested = shape.memory.array<float>(scales.groups + 1, shape.offset(4));
  shape.fill(scales.nested, scales.groups + 1);
  return scales;
}

template <typename T>
void dequantize(Shape& shape, ElementType kind) {
  constexpr int64_t kVector = 16 / sizeof(T), kOfBlock = kThreads * kVector;
  const int64_t count =
      shape.is_far() ? kFar + shape.from_to(1, 2 * kOfBlock) : shape.from_to(1, 3 * kOfBlock);
  shape.text = std::to_string(count) + " weights";
  const Scales scales = draw_scales(shape, count);
  std::vector<uint64_t> blocks;  // that run; all if there are none
  std::vector<std::pair<int64_t, int64_t>> ranges = {{0, count}};
  if (shape.is_far()) {
    blocks = {0, static_cast<uint64_t>((count - 1) / kOfBlock)};
    ranges = {{0, kOfBlock}, {(count - 1) / kOfBlock * kOfBlock, count}};
  }
  const int64_t bytes = (count + 1) / 2;
  uint8_t* const codes = shape.is_far() ? shape.memory.far_array<uint8_t>(bytes)
                                        : shape.memory.array<uint8_t>(bytes, shape.offset(1));
  T* const out = shape.is_far() ? shape.memory.far_array<T>(count)
                                : shape.memory.array<T>(count, shape.offset(sizeof(T)));
  for (const auto& [begin, end] : ranges) {
    fill_bytes(shape, codes, begin / 2, (end + 1) / 2);
    if (!shape.is_far()) continue;
    auto* const absmax = reinterpret_cast<float*>(scales.absmax);
    shape.fill(absmax + begin / kBlock, blocks_of(end) - begin / kBlock);
  }
  model::gpu::DequantizeNf4 call{.codes = codes,
                                 .absmax = scales.absmax,
                                 .nested_absmax = scales.nested,
                                 .mean = scales.nested + scales.groups,
                                 .out = out,
                                 .count = count,
                                 .first_block = scales.first,
                                 .blocks_per_row = scales.per_row,
                                 .row_step = scales.row_step,
                                 .block = kBlock,
                                 .blocks_per_group = kGroup,
                                 .vectors = reinterpret_cast<uintptr_t>(out) % 16 == 0,
                                 .numbers = {},
                                 .absmax_map = {}};
  for (float& number : call.numbers) number = static_cast<float>(shape.uniform() - 0.5);
  for (float& number : call.absmax_map) number = static_cast<float>(shape.uniform() - 0.5);
  shape.run([&] { dequantize_nf4(kind, call, nullptr); },
            {bytes_of(out, shape.is_far() ? 0 : count)}, blocks);
  for (const auto& [begin, end] : ranges) {
    for (int64_t i = begin; i < end; ++i) {
      const int code = codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
      const double expected = double{call.numbers[code]} * scales.at(call, i / kBlock);
      shape.expect("out", i, out[i], expected, std::abs(expected) * kFloatStep);
    }
  }
}

}  // namespace

TEST_CASE("dequantize_nf4_kernel gives the number of each code times its scale") {
  run_shapes(
      {{"fp32", [](Shape& shape) { dequantize<float>(shape, ElementType::kFloat); }},
       {"bf16", [](Shape& shape) { dequantize<__nv_bfloat16>(shape, ElementType::kBfloat16); }},
       {"fp16", [](Shape& shape) { dequantize<__half>(shape, ElementType::kHalf); }}},
      {"dequantize_nf4_kernel"});
}

}  // namespace zeroth::emulated::nf4_test
