#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/json/json.h"
#include "base/text/printable.h"
#include "model/hf/config_reader.h"
#include "model/spec.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

// Keys that say how transformers computes with the weights, not what they are, or that concern
// load_in_8bit alone.
const std::set<std::string> kIgnoredKeys = {"_load_in_4bit",
                                            "_load_in_8bit",
                                            "bnb_4bit_compute_dtype",
                                            "llm_int8_enable_fp32_cpu_offload",
                                            "llm_int8_has_fp16_weight",
                                            "llm_int8_threshold"};

// Adds an error if the modules that are not quantized are more than those that never are.
void read_skipped(ConfigReader& config) {
  static const std::set<std::string> kNeverQuantized = {"lm_head", "embed_tokens",
                                                        "model.embed_tokens"};
  constexpr const char* kKey = "llm_int8_skip_modules";
  const json* const skipped = config.find(kKey);
  if (skipped == nullptr) return;
  const json list = skipped->is_array() ? *skipped : json::array({*skipped});
  for (const json& name : list) {
    if (name.is_string() && kNeverQuantized.contains(name.get<std::string>())) continue;
    config.add_error(kKey, "has {}; supported are lm_head and embed_tokens", quoted(name));
  }
}

}  // namespace

std::optional<QuantizationSpec> read_quantization(ConfigReader& config, const ModelSpec& spec) {
  constexpr const char* kKey = "quantization_config";
  const json* const value = config.find(kKey);
  if (value == nullptr || value->empty()) return std::nullopt;
  if (!value->is_object()) {
    config.add_error(kKey, "is {}, expected an object", quoted(*value));
    return std::nullopt;
  }
  ConfigReader own(*value, "quantization_config.");
  const std::string method = own.text("quant_method", "");
  const bool is_4bit = own.flag("load_in_4bit", false);
  if (method != "bitsandbytes" || !is_4bit) {
    config.add_error(kKey,
                     "says that the weights are quantized ({}), which is not supported: use the "
                     "model in 16 bits, of which --load_in_4bit makes NF4, or NF4 of bitsandbytes",
                     method.empty()             ? shortened(value->dump())
                     : method == "bitsandbytes" ? "bitsandbytes without load_in_4bit"
                                                : shortened(method));
    return std::nullopt;
  }
  const std::string type = own.text("bnb_4bit_quant_type", "fp4");
  if (type != "nf4")
    own.add_error("bnb_4bit_quant_type", "is \"{}\"; supported is nf4", shortened(type));
  own.reject("load_in_8bit");
  if (spec.conv1d) {
    config.add_error(kKey, "is set, but NF4 of {} is not supported", shortened(spec.family));
  }
  read_skipped(own);
  QuantizationSpec quantization{.double_quant = own.flag("bnb_4bit_use_double_quant", false),
                                .is_stored = true,
                                .dtype = spec.dtype.empty() ? "float32" : spec.dtype};
  (void)own.text("bnb_4bit_quant_storage", "uint8");
  own.collect_unknown_keys(kIgnoredKeys);
  config.add(own);
  return quantization;
}

}  // namespace zeroth::model
