#include "model/kernels/nf4.h"

#include <ATen/Functions.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/dynamic_map.h"
#include "base/error.h"
#include "base/machine/parallel.h"
#include "model/kernels/cpu/select.h"

namespace zeroth::model {
namespace {

using torch::Tensor;
using Dequantize = void(const Tensor& out, const Tensor& codes, const Tensor& absmax,
                        const std::optional<Tensor>& nested_absmax, at::IntArrayRef place);

// Number of blocks below which a separate thread does not pay.
constexpr int64_t kGrain = 1 << 9;

const std::array<float, 256>& absmax_map() {
  static const std::array<float, 256> map = dynamic_map(/*is_signed=*/true);
  return map;
}

// Returns the code of the number that is nearest to x, of two the smaller one.
uint8_t nearest_code(float x) {
  static const std::array<float, 255> midpoints = [] {
    std::array<float, 255> middle{};
    for (size_t i = 0; i < middle.size(); ++i)
      middle[i] = (absmax_map()[i] + absmax_map()[i + 1]) / 2;
    return middle;
  }();
  return static_cast<uint8_t>(std::ranges::lower_bound(midpoints, x) - midpoints.begin());
}

// Writes the scales of blocks [begin, end).
void widen_scales(const Nf4Scales& scales, int64_t begin, int64_t end, float* to) {
  const auto* const bytes = scales.absmax.const_data_ptr<uint8_t>();
  if (!scales.is_double()) {
    std::memcpy(to, bytes + begin * sizeof(float), (end - begin) * sizeof(float));
    return;
  }
  const auto* const nested = static_cast<const float*>(scales.nested_absmax.const_data_ptr());
  const float mean = nested[scales.nested_absmax.numel() / sizeof(float) - 1];
  for (int64_t block = begin; block < end; ++block) {
    const float product =
        absmax_map()[bytes[block]] * nested[scales.place.in_full(block) / kNestedBlock];
    to[block - begin] = product + mean;
  }
}

// Returns the scales that an operator has as its arguments.
Nf4Scales to_scales(const Tensor& absmax, const std::optional<Tensor>& nested_absmax,
                    at::IntArrayRef place) {
  return {absmax, nested_absmax.value_or(Tensor()), {place[0], place[1], place[2]}};
}

void dequantize_cpu(const Tensor& out, const Tensor& codes, const Tensor& absmax,
                    const std::optional<Tensor>& nested_absmax, at::IntArrayRef place) {
  const Nf4Scales scales = to_scales(absmax, nested_absmax, place);
  const bool done = cpu::with_kernels(out.scalar_type(), [&](const auto& kernels, auto t) {
    using T = decltype(t);
    const int64_t numel = out.numel();
    parallel_for(nf4_blocks(numel), kGrain, [&](int64_t begin, int64_t end) {
      constexpr int64_t kBatch = 64;  // blocks whose scales are widened at once
      std::array<float, kBatch> widened;
      for (int64_t first = begin; first < end; first += kBatch) {
        const int64_t last = std::min(first + kBatch, end), at = first * kNf4Block;
        widen_scales(scales, first, last, widened.data());
        kernels.dequantize_nf4(codes.const_data_ptr<uint8_t>() + at / 2, widened.data(),
                               cpu::data<T>(out) + at, std::min(last * kNf4Block, numel) - at);
      }
    });
  });
  if (!done) formula::dequantize_nf4(codes, scales, out);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(zeroth, library) {
  library.def(
      "dequantize_nf4(Tensor(a!) out, Tensor codes, Tensor absmax, Tensor? nested_absmax, "
      "int[3] place) -> ()",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                      [](const Tensor& out, const Tensor& codes, const Tensor& absmax,
                         const std::optional<Tensor>& nested, at::IntArrayRef place) {
                        formula::dequantize_nf4(codes, to_scales(absmax, nested, place), out);
                      }));
}

TORCH_LIBRARY_IMPL(zeroth, CPU, library) {
  library.impl("dequantize_nf4", dequantize_cpu);
}

Nf4Codes Nf4Codes::rows(int64_t begin, int64_t count) const {
  ZEROTH_CHECK(codes.dim() == 2, "rows of codes without rows");
  Nf4Codes slice{codes.narrow(0, begin, count), scales};
  slice.scales.absmax = scales.absmax.narrow(0, begin, count);
  slice.scales.place.first += begin * scales.place.row_step;
  return slice;
}

Nf4Codes Nf4Codes::columns(int64_t begin, int64_t count) const {
  ZEROTH_CHECK(codes.dim() == 2 && begin % kNf4Block == 0 && count % kNf4Block == 0,
               "columns {} to {} of codes", begin, begin + count);
  const int64_t block = scales.absmax.size(1) / scales.place.per_row;  // bytes
  const int64_t first = begin / kNf4Block, blocks = count / kNf4Block;
  Nf4Codes slice{codes.narrow(1, begin / 2, count / 2).contiguous(), scales};
  slice.scales.absmax = scales.absmax.narrow(1, first * block, blocks * block).contiguous();
  slice.scales.place.first += first;
  slice.scales.place.per_row = blocks;
  return slice;
}

void dequantize_nf4(const Tensor& codes, const Nf4Scales& scales, const Tensor& out) {
  const torch::NoGradGuard no_grad;
  const int64_t blocks = nf4_blocks(out.numel());
  const int64_t absmax_bytes = scales.is_double() ? blocks : blocks * int64_t{sizeof(float)};
  ZEROTH_CHECK(out.is_contiguous() && codes.is_contiguous() && scales.absmax.is_contiguous() &&
                   codes.numel() == (out.numel() + 1) / 2 && scales.absmax.numel() == absmax_bytes,
               "{} weights have {} bytes of codes and {} of scales", out.numel(), codes.numel(),
               scales.absmax.numel());
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("zeroth::dequantize_nf4", "")
                             .typed<Dequantize>();
  const auto& [first, per_row, row_step] = scales.place;
  op.call(out, codes, scales.absmax,
          scales.is_double() ? std::optional(scales.nested_absmax) : std::nullopt,
          {first, per_row, row_step});
}

void formula::dequantize_nf4(const Tensor& codes, const Nf4Scales& scales, const Tensor& out) {
  const auto table = [&](const float* values, int64_t size) {
    return at::from_blob(const_cast<float*>(values), {size}, torch::kFloat).to(out.device());
  };
  const Tensor pairs =
      at::stack({codes.flatten().div(16, "floor"), codes.flatten().remainder(16)}, 1);
  const Tensor numbers = table(kNf4Values, 16).index_select(0, pairs.flatten().to(torch::kLong));
  Tensor absmax = scales.absmax.flatten();
  if (scales.is_double()) {
    const Tensor nested = scales.nested_absmax.view(torch::kFloat);
    const auto& [first, per_row, row_step] = scales.place;
    const Tensor block = at::arange(absmax.numel(), absmax.options().dtype(torch::kLong));
    const Tensor in_full =
        block.div(per_row, "floor").mul_(row_step).add_(block.remainder(per_row)).add_(first);
    absmax = table(absmax_map().data(), 256)
                 .index_select(0, absmax.to(torch::kLong))
                 .mul_(nested.index_select(0, in_full.div_(kNestedBlock, "floor")))
                 .add_(nested[-1]);
  } else {
    absmax = absmax.view(torch::kFloat);
  }
  const Tensor by_weight = absmax.repeat_interleave(kNf4Block).narrow(0, 0, out.numel());
  out.copy_(numbers.narrow(0, 0, out.numel()).mul(by_weight).view(out.sizes()));
}

void quantize_nf4(const Tensor& values, const Tensor& codes, const Tensor& absmax) {
  const int64_t numel = values.numel();
  ZEROTH_CHECK(codes.numel() == (numel + 1) / 2 && absmax.numel() == nf4_blocks(numel),
               "{} weights, {} bytes of codes, {} scales", numel, codes.numel(), absmax.numel());
  parallel_for(nf4_blocks(numel), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kNf4Block;
    cpu::select_kernels().quantize_nf4(
        values.const_data_ptr<float>() + at, std::min(end * kNf4Block, numel) - at,
        codes.data_ptr<uint8_t>() + at / 2, absmax.data_ptr<float>() + begin);
  });
}

NestedAbsmax quantize_absmax(const Tensor& absmax) {
  const int64_t blocks = absmax.numel(), groups = nested_groups(blocks);
  const NestedAbsmax result{at::empty({blocks}, torch::kByte),
                            at::empty({groups + 1}, torch::kFloat)};
  const auto* const from = absmax.const_data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < blocks; ++i) sum += from[i];
  auto* const nested = result.nested.data_ptr<float>();
  const auto mean = static_cast<float>(sum / static_cast<double>(blocks));
  nested[groups] = mean;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = group * kNestedBlock, end = std::min(begin + kNestedBlock, blocks);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(from[i] - mean));
    nested[group] = largest;
    const float inverse = 1 / std::max(largest, kNf4MinAbsmax);
    for (int64_t i = begin; i < end; ++i) {
      result.codes.data_ptr<uint8_t>()[i] = nearest_code((from[i] - mean) * inverse);
    }
  }
  return result;
}

}  // namespace zeroth::model
