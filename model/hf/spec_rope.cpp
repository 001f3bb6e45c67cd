#include "model/hf/config_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json/json.h"
#include "base/text/printable.h"
#include "model/spec.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

// Keys that the other kinds of scaling read; they have no influence on the supported kinds.
const std::set<std::string> kOtherScalingKeys = {
    "attention_factor", "beta_fast",
    "beta_slow",        "short_factor",
    "long_factor",      "mscale",
    "mscale_all_dim",   "finetuned",
    "low_freq_factor",  "high_freq_factor",
    "factor",           "truncate",
    "rope_type",        "type",
    "rope_theta",       "original_max_position_embeddings"};

constexpr std::pair<std::string_view, RopeScaling> kKinds[] = {
    {"default", RopeScaling::kNone},    {"linear", RopeScaling::kLinear},
    {"dynamic", RopeScaling::kDynamic}, {"llama3", RopeScaling::kLlama3},
    {"yarn", RopeScaling::kYarn},       {"longrope", RopeScaling::kLongRope}};

RopeScaling read_kind(ConfigReader& rope) {
  const std::string old_kind = rope.text("type", "default");
  const std::string kind = rope.text("rope_type", old_kind);
  return rope.choose("rope_type", kind, kKinds, "default, linear, dynamic, llama3, yarn, longrope");
}

void read_llama3(ConfigReader& rope, RopeSpec& spec) {
  spec.low_freq_factor = rope.positive("low_freq_factor");
  spec.high_freq_factor = rope.positive("high_freq_factor");
  if (spec.high_freq_factor == spec.low_freq_factor) {
    rope.add_error("high_freq_factor", "is {}, the same as low_freq_factor, expected another value",
                   spec.high_freq_factor);
  }
}

double yarn_attention(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Reads them as transformers does: 0 means "not given" for all except the factors.
void read_yarn(ConfigReader& rope, RopeSpec& spec) {
  if (spec.theta <= 1) {
    rope.add_error("rope_theta", "is {}, expected more than 1 for yarn", spec.theta);
  }
  const double mscale = rope.number("mscale", 0.0);
  const double mscale_all = rope.number("mscale_all_dim", 0.0);
  const double default_attention =
      mscale != 0 && mscale_all != 0
          ? yarn_attention(spec.factor, mscale) / yarn_attention(spec.factor, mscale_all)
          : yarn_attention(spec.factor, 1);
  spec.attention_factor = rope.positive("attention_factor", default_attention);
  const auto turns = [&](const char* key, double fallback) {
    const double value = rope.number(key, fallback);
    if (value < 0) rope.add_error(key, "is {}, expected more than 0", value);
    return value > 0 ? value : fallback;
  };
  spec.beta_fast = turns("beta_fast", 32);
  spec.beta_slow = turns("beta_slow", 1);
  spec.truncate = rope.flag("truncate", true);
}

void read_longrope(ConfigReader& rope, int64_t head_dim, RopeSpec& spec) {
  spec.short_factors = rope.positives("short_factor", head_dim / 2);
  spec.long_factors = rope.positives("long_factor", head_dim / 2);
  if (spec.original_max_positions == 1) {
    rope.add_error("original_max_position_embeddings", "is 1, expected more than 1");
  }
  const auto context = static_cast<double>(spec.original_max_positions);
  const double default_attention =
      spec.factor <= 1 ? 1 : std::sqrt(1 + std::log(spec.factor) / std::log(context));
  spec.attention_factor = rope.positive("attention_factor", default_attention);
}

// Reads the factor, and the keys of the scaling's kind.
void read_scaling(ConfigReader& rope, int64_t head_dim, int64_t max_positions, RopeSpec& spec) {
  if (spec.scaling == RopeScaling::kNone) return;
  const bool extends =
      spec.scaling != RopeScaling::kLinear && spec.scaling != RopeScaling::kDynamic;
  if (extends) {
    spec.original_max_positions = rope.size("original_max_position_embeddings", max_positions);
  }
  // If it is left out (longrope) or null (yarn), it is the ratio of the two contexts.
  const bool has_ratio = spec.scaling == RopeScaling::kLongRope ||
                         (spec.scaling == RopeScaling::kYarn && rope.has("factor"));
  const double ratio = static_cast<double>(max_positions) /
                       static_cast<double>(std::max<int64_t>(spec.original_max_positions, 1));
  spec.factor = rope.positive("factor", has_ratio ? std::optional(ratio) : std::nullopt);
  if (spec.scaling == RopeScaling::kLlama3) read_llama3(rope, spec);
  if (spec.scaling == RopeScaling::kYarn) read_yarn(rope, spec);
  if (spec.scaling == RopeScaling::kLongRope) read_longrope(rope, head_dim, spec);
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_positions, double theta) {
  RopeSpec spec;
  spec.theta = config.positive("rope_theta", theta);
  config.require("partial_rotary_factor", 1.0);

  // The old key wins over the new one, as in transformers.
  const json* parameters = config.find("rope_parameters");
  const json* scaling = config.find("rope_scaling");
  const bool old_key = scaling != nullptr && !scaling->empty();
  const json* chosen = old_key ? scaling : parameters;
  const std::string key = old_key ? "rope_scaling" : "rope_parameters";
  if (chosen == nullptr) return spec;
  if (!chosen->is_object()) {
    config.add_error(key, "is {}, expected an object", quoted(*chosen));
    return spec;
  }
  ConfigReader rope(*chosen, key + ".");
  spec.theta = rope.positive("rope_theta", spec.theta);
  rope.require("partial_rotary_factor", 1.0);
  for (const char* layer_type : {"full_attention", "sliding_attention", "mrope_section"}) {
    rope.reject(layer_type);
  }
  spec.scaling = read_kind(rope);
  read_scaling(rope, head_dim, max_positions, spec);
  rope.collect_unknown_keys(kOtherScalingKeys);
  config.add(rope);
  return spec;
}

}  // namespace zeroth::model
