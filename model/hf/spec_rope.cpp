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
const std::set<std::string> kOtherScalingKeys = {"attention_factor",
                                                 "beta_fast",
                                                 "beta_slow",
                                                 "short_factor",
                                                 "long_factor",
                                                 "mscale",
                                                 "mscale_all_dim",
                                                 "finetuned",
                                                 "low_freq_factor",
                                                 "high_freq_factor",
                                                 "factor",
                                                 "truncate",
                                                 "rope_type",
                                                 "type",
                                                 "rope_theta",
                                                 "original_max_position_embeddings",
                                                 "alpha",
                                                 "partial_rotary_factor",
                                                 "max_position_embeddings",
                                                 "llama_4_scaling_beta"};

constexpr const char* kFullAttention = "full_attention";
constexpr const char* kSlidingAttention = "sliding_attention";

constexpr std::pair<std::string_view, RopeScaling> kKinds[] = {
    {"default", RopeScaling::kNone},
    {"linear", RopeScaling::kLinear},
    {"dynamic", RopeScaling::kDynamic},
    {"llama3", RopeScaling::kLlama3},
    {"yarn", RopeScaling::kYarn},
    {"longrope", RopeScaling::kLongRope},
    {"proportional", RopeScaling::kProportional}};

RopeScaling read_kind(ConfigReader& rope, const RopeKeys& keys) {
  const std::string old_kind = rope.text("type", "default");
  std::string kind = rope.text("rope_type", old_kind);
  if (keys.yarn_is_longrope && (kind == "yarn" || kind == "su")) kind = "longrope";
  return rope.choose("rope_type", kind, kKinds,
                     "default, linear, dynamic, llama3, yarn, longrope, proportional");
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
  const double mscale_all = spec.mscale_all_dim = rope.number("mscale_all_dim", 0.0);
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
// `context` is the original one if config.json has it outside of the object, too: it wins there.
void read_scaling(ConfigReader& rope, int64_t head_dim, int64_t max_positions,
                  std::optional<int64_t> context, RopeSpec& spec) {
  if (spec.scaling == RopeScaling::kNone) return;
  if (spec.scaling == RopeScaling::kProportional) {
    spec.factor = rope.positive("factor", 1.0);
    return;
  }
  const bool extends =
      spec.scaling != RopeScaling::kLinear && spec.scaling != RopeScaling::kDynamic;
  if (extends) {
    constexpr const char* kKey = "original_max_position_embeddings";
    spec.original_max_positions = rope.size(kKey, max_positions);
    if (context) spec.original_max_positions = *context;
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

// A Section is an object of config.json and its path.
struct Section {
  std::string key;
  json object;
};

// Returns the section with an empty object in place of anything else, which is an error.
Section require_object(ConfigReader& config, Section section) {
  if (section.object.is_object()) return section;
  config.add_error(section.key, "is {}, expected an object", quoted(section.object));
  return {section.key, json::object()};
}

// Returns the object that has the rotary parameters of the layers of one type.
Section find_layer_parameters(ConfigReader& config, const RopeKeys& keys) {
  const json* const parameters = config.find("rope_parameters");
  const json* const scaling = config.find("rope_scaling");
  Section found{"rope_parameters", json::object()};
  if (parameters != nullptr) {
    found = require_object(config, {found.key, *parameters});
  } else if (keys.parameters != nullptr) {
    found.object[keys.layer_type] =
        parse_json(keys.parameters, {.name = found.key, .limits = kConfigLimits});
  }
  const char* const layer_type = keys.layer_type;
  const auto own = found.object.find(layer_type);
  // A family with parameters of a missing object has none of a missing entry.
  const bool is_missing = keys.parameters == nullptr
                              ? own == found.object.end() && !found.object.empty()
                              : own == found.object.end() || own->is_null();
  if (is_missing)
    config.add_error(found.key, "has no {}, one of this model's types of layers", layer_type);
  found = {found.key + "." + layer_type,
           own == found.object.end() || own->is_null() ? json::object() : *own};
  found = require_object(config, std::move(found));
  if (scaling == nullptr || std::string_view(layer_type) != kFullAttention) return found;
  const Section added = require_object(config, {"rope_scaling", *scaling});
  if (parameters == nullptr && added.object.contains("type") && !added.object.contains("rope_type"))
    config.add_error(added.key,
                     "has the key type, which transformers does not read for this "
                     "model: rename it to rope_type");
  found.object.update(added.object);
  if (!added.object.empty()) found.key = added.key;
  return found;
}

// Returns the object that has the rotary parameters, empty if there is none.
Section find_parameters(ConfigReader& config, const RopeKeys& keys) {
  if (keys.layer_type != nullptr) return find_layer_parameters(config, keys);
  const json* parameters = config.find("rope_parameters");
  const json* scaling = config.find("rope_scaling");
  Section found{"rope_parameters", json::object()};
  // The old key wins over the new one, as in transformers.
  if (scaling != nullptr && !scaling->empty()) {
    found = {"rope_scaling", *scaling};
  } else if (parameters == nullptr && keys.parameters != nullptr) {
    found.object = parse_json(keys.parameters, {.name = found.key, .limits = kConfigLimits});
  } else if (parameters != nullptr) {
    found.object = *parameters;
  }
  return require_object(config, std::move(found));
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_positions,
                   const RopeKeys& keys) {
  RopeSpec spec;
  spec.interleaved = keys.interleaved;
  spec.theta = keys.theta_key == nullptr ? keys.theta : config.positive(keys.theta_key, keys.theta);
  // As in transformers, null is not a missing key.
  double partial_factor =
      config.is_null(keys.partial_key) ? 1 : config.positive(keys.partial_key, keys.partial_factor);

  const Section section = find_parameters(config, keys);
  ConfigReader rope(section.object, section.key + ".");
  spec.theta = rope.positive("rope_theta", spec.theta);
  partial_factor = rope.positive("partial_rotary_factor", partial_factor);
  spec.scaling = read_kind(rope, keys);
  if (spec.scaling == RopeScaling::kProportional) {
    spec.rotated_share = std::exchange(partial_factor, 1);
    if (spec.rotated_share > 1)
      rope.add_error("partial_rotary_factor", "is {}, expected at most 1", spec.rotated_share);
  }
  const auto rotary_dim =
      static_cast<int64_t>(static_cast<double>(head_dim) * std::clamp(partial_factor, 0.0, 1.0));
  if (partial_factor > 1 || (partial_factor != 1 && !keys.is_partial)) {
    config.add_error(keys.partial_key, "is {}, expected {}1", partial_factor,
                     keys.is_partial ? "at most " : "");
  } else if (head_dim > 0 && (rotary_dim < 2 || rotary_dim % 2 != 0)) {
    config.add_error(partial_factor == 1 ? "head_dim" : keys.partial_key,
                     "is {}, but rotary embeddings need an even number of dimensions",
                     partial_factor == 1 ? static_cast<double>(head_dim) : partial_factor);
  }
  if (rotary_dim < head_dim) spec.rotary_dim = rotary_dim;
  for (const char* layer_type : {kFullAttention, kSlidingAttention}) rope.reject(layer_type);
  for (const char* key : {"mrope_section", "mrope_interleaved"})
    keys.has_sections ? void(rope.find(key)) : rope.reject(key);
  if (keys.has_alpha && spec.scaling == RopeScaling::kDynamic && rope.find("alpha") != nullptr) {
    const auto dim = static_cast<double>(head_dim);
    const double alpha = rope.positive("alpha");
    spec.theta *= std::pow(alpha, dim / (dim - 2));
    if (!(spec.theta > 0 && std::isfinite(spec.theta)))
      rope.add_error("alpha", "is {}, which gives no theta", alpha);
    spec.scaling = RopeScaling::kNone;
  }
  constexpr const char* kContext = "original_max_position_embeddings";
  std::optional<int64_t> context = keys.context;
  // transformers reads neither this nor truncate where each type of layer has its own parameters.
  const bool by_layer_type = keys.layer_type != nullptr;
  if (!by_layer_type && config.find(kContext) != nullptr) context = config.size(kContext);
  read_scaling(rope, rotary_dim, max_positions, context, spec);
  if (by_layer_type && spec.scaling == RopeScaling::kYarn) rope.require("truncate", true);
  rope.collect_unknown_keys(kOtherScalingKeys);
  config.add(rope);
  return spec;
}

}  // namespace zeroth::model
