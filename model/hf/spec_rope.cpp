#include "model/hf/spec_rope.h"

#include <fmt/format.h>

#include <string>

#include "base/json.h"
#include "base/printable.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

// What the other kinds of scaling read; without influence on the kinds we have.
const std::set<std::string> kOtherKinds = {"attention_factor", "beta_fast",
                                           "beta_slow",        "short_factor",
                                           "long_factor",      "mscale",
                                           "mscale_all_dim",   "finetuned",
                                           "low_freq_factor",  "high_freq_factor",
                                           "factor",           "truncate",
                                           "rope_type",        "type",
                                           "rope_theta",       "original_max_position_embeddings"};

RopeScaling read_kind(ConfigReader& rope) {
  const std::string old_kind = rope.text("type", "default");
  const std::string kind = rope.text("rope_type", old_kind);
  if (kind == "default") return RopeScaling::kNone;
  if (kind == "linear") return RopeScaling::kLinear;
  if (kind == "dynamic") return RopeScaling::kDynamic;
  if (kind == "llama3") return RopeScaling::kLlama3;
  rope.complain(
      "rope_type",
      fmt::format("is \"{}\"; supported are default, linear, dynamic, llama3", shortened(kind)));
  return RopeScaling::kNone;
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t max_positions) {
  RopeSpec spec;
  spec.theta = config.positive("rope_theta", 10000.0);
  config.require("partial_rotary_factor", 1.0);

  // As transformers does: the old key wins over the new one.
  const json* parameters = config.find("rope_parameters");
  const json* scaling = config.find("rope_scaling");
  const bool old_key = scaling != nullptr && !scaling->empty();
  const json* chosen = old_key ? scaling : parameters;
  const std::string key = old_key ? "rope_scaling" : "rope_parameters";
  if (chosen == nullptr) return spec;
  if (!chosen->is_object()) {
    config.complain(key, fmt::format("is {}, expected an object", quoted(*chosen)));
    return spec;
  }
  ConfigReader rope(*chosen, key + ".");
  spec.theta = rope.positive("rope_theta", spec.theta);
  rope.require("partial_rotary_factor", 1.0);
  for (const char* layer_type : {"full_attention", "sliding_attention", "mrope_section"}) {
    rope.refuse(layer_type);
  }
  spec.scaling = read_kind(rope);
  if (spec.scaling != RopeScaling::kNone) spec.factor = rope.positive("factor");
  if (spec.scaling == RopeScaling::kLlama3) {
    spec.low_freq_factor = rope.positive("low_freq_factor");
    spec.high_freq_factor = rope.positive("high_freq_factor");
    spec.original_max_positions = rope.size("original_max_position_embeddings", max_positions);
    if (spec.high_freq_factor == spec.low_freq_factor) {
      rope.complain(
          "high_freq_factor",
          fmt::format("is {} like low_freq_factor, expected another value", spec.high_freq_factor));
    }
  }
  rope.note_unknown(kOtherKinds);
  config.add(rope);
  return spec;
}

}  // namespace zeroth::model
