#include "model/weight_source.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/parallel.h"

namespace zeroth::model {
namespace {

constexpr int64_t kGrain = 1 << 14;

// The names of a dtype in which models are saved.
struct DtypeNames {
  torch::Dtype dtype;
  std::string_view safetensors, config;
};
constexpr DtypeNames kDtypeNames[] = {{torch::kFloat, "F32", "float32"},
                                      {torch::kBFloat16, "BF16", "bfloat16"},
                                      {torch::kHalf, "F16", "float16"}};

const DtypeNames& names_of(torch::Dtype dtype) {
  const auto* const known = std::ranges::find(kDtypeNames, dtype, &DtypeNames::dtype);
  ZEROTH_CHECK(known != std::end(kDtypeNames), "no model is saved in {}", c10::toString(dtype));
  return *known;
}

std::optional<torch::Dtype> find_dtype(std::string_view DtypeNames::*format,
                                       std::string_view name) {
  const auto* const known = std::ranges::find(kDtypeNames, name, format);
  return known != std::end(kDtypeNames) ? std::optional(known->dtype) : std::nullopt;
}

// Ends of names of parameters, and the values with which they begin, as in transformers.
constexpr std::pair<std::string_view, double> kFirstValues[] = {
    {".router.scale", 1},
    {".per_expert_scale", 1},
    {".layer_scalar", 1},
    {".activation.alpha_p", 0.2033823208110246},   // its softplus is 0.8
    {".activation.alpha_n", -1.0502256128148468},  // its softplus is 0.3
    {".activation.beta", 0.5},
    {".activation.eps", -1e-6}};

uint64_t mix(uint64_t value) {
  return mix64(value + kGolden);
}

// Box-Muller: elements 2n and 2n + 1 come from one pair of uniform numbers.
float normal(uint64_t key, int64_t index) {
  const uint64_t bits = mix(key ^ mix(static_cast<uint64_t>(index) / 2));
  const float radius_uniform = (static_cast<float>(bits >> 40) + 1) * 0x1p-24F;  // (0, 1]
  const float angle_uniform = static_cast<float>(bits & 0xffffff) * 0x1p-24F;    // [0, 1)
  const float radius = std::sqrt(-2 * std::log(radius_uniform));
  const float angle = 2 * std::numbers::pi_v<float> * angle_uniform;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Returns a value in [-1, 1).
float uniform(uint64_t key, int64_t index) {
  const uint64_t bits = mix(key ^ mix(static_cast<uint64_t>(index)));
  return static_cast<float>(bits >> 40) * 0x1p-23F - 1;
}

uint64_t parameter_key(const ParamSlice& part, uint64_t seed) {
  return mix(mix(seed) ^ fnv1a(part.name));
}

// Fills `out` with value(index), by the elements' indices in the full parameter.
template <typename Value>
void fill_by_index(const ParamSlice& part, torch::Tensor out, const Value& value) {
  const torch::Tensor values =
      out.scalar_type() == torch::kFloat ? out : torch::empty(out.sizes(), torch::kFloat);
  float* data = values.data_ptr<float>();
  for (const SliceRows& rows : slice_rows(part.box, part.first, out.numel(), out.numel())) {
    parallel_for(rows.elements(), kGrain, [&](int64_t begin, int64_t end) {
      rows.for_each_run(begin, end, [&](int64_t at, int64_t whole, int64_t size) {
        for (int64_t i = 0; i < size; ++i) data[at + i] = value(whole + i);
      });
    });
    data += rows.elements();
  }
  if (!values.is_same(out)) out.copy_(values);
}

}  // namespace

std::string_view dtype_name(torch::Dtype dtype) {
  return names_of(dtype).safetensors;
}

std::optional<torch::Dtype> parse_dtype(std::string_view name) {
  return find_dtype(&DtypeNames::safetensors, name);
}

std::string_view torch_dtype_name(torch::Dtype dtype) {
  return names_of(dtype).config;
}

std::optional<torch::Dtype> parse_torch_dtype(std::string_view name) {
  return find_dtype(&DtypeNames::config, name);
}

void draw_normal(const ParamSlice& part, uint64_t seed, double deviation, torch::Tensor out) {
  const uint64_t key = parameter_key(part, seed);
  const auto scale = static_cast<float>(deviation);
  fill_by_index(part, std::move(out), [&](int64_t index) { return scale * normal(key, index); });
}

void draw_uniform(const ParamSlice& part, uint64_t seed, double bound, torch::Tensor out) {
  const uint64_t key = parameter_key(part, seed);
  const auto scale = static_cast<float>(bound);
  fill_by_index(part, std::move(out), [&](int64_t index) { return scale * uniform(key, index); });
}

void RandomSource::read(const ParamSlice& part, torch::Tensor out) {
  // As in transformers: rates of decay from 0.01 to 16, before the softplus of inputs around 1.
  constexpr float kMinRate = 0.01F, kMaxRate = 16;
  const bool in_delta_net = part.name.find(".delta_net.") != std::string::npos;
  if (in_delta_net && part.name.ends_with(".dt_bias")) {
    out.fill_(1);
    return;
  }
  if (in_delta_net && part.name.ends_with(".A_log")) {
    return fill_by_index(part, std::move(out), [key = parameter_key(part, seed_)](int64_t index) {
      return std::log(kMinRate + (kMaxRate - kMinRate) * (uniform(key, index) + 1) / 2);
    });
  }
  if (part.name.ends_with("bias")) {
    out.zero_();
    return;
  }
  if (part.name.ends_with("norm.weight")) {
    out.fill_(in_delta_net ? 1 : 1 - spec_.norm.weight_offset);
    return;
  }
  for (const auto& [end, value] : kFirstValues) {
    if (!part.name.ends_with(end)) continue;
    out.fill_(value);
    return;
  }
  const uint64_t key = parameter_key(part, seed_);
  const bool residual =
      part.name.ends_with(".attention.o.weight") || part.name.ends_with(".mlp.down.weight");
  double range = spec_.initializer_range;
  if (residual && spec_.family == "gpt2") {
    range /= std::sqrt(2.0 * static_cast<double>(spec_.num_layers));
  }
  const auto scale = static_cast<float>(range);
  // The padding token's row stays zero.
  const bool padded = spec_.padding_token >= 0 && (part.name == "embedding.weight" ||
                                                   part.name == "embedding.per_layer.weight");
  const int64_t zeros_end = padded ? (spec_.padding_token + 1) * part.box.shape.back() : 0;
  const int64_t zeros_begin = padded ? zeros_end - part.box.shape.back() : 0;
  fill_by_index(part, std::move(out), [&](int64_t index) {
    return index >= zeros_begin && index < zeros_end ? 0 : scale * normal(key, index);
  });
}

}  // namespace zeroth::model
