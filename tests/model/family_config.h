// What tests of families share: a config.json of each one, and what is read of it.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/hf/checkpoint_map.h"
#include "model/spec.h"

namespace zeroth::model {

using Windows = std::vector<int64_t>;

// Changes of a config.json.
inline const nlohmann::json kFour = {{"num_hidden_layers", 4}};
inline const nlohmann::json kTypes = {"full_attention", "sliding_attention", "full_attention"};

inline nlohmann::json with(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return config;
}

// A config.json with the keys alone that have no default.
inline nlohmann::json smallest(const std::string& family) {
  return {{"model_type", family},   {"vocab_size", 64},        {"hidden_size", 32},
          {"num_hidden_layers", 3}, {"intermediate_size", 48}, {"num_attention_heads", 4}};
}

// Returns the spec of smallest() with changes, of which null stays null.
inline ModelSpec parse_family(const std::string& family,
                              const nlohmann::json& changes = nlohmann::json::object()) {
  return parse_model_spec(with(smallest(family), changes).dump(), "config.json");
}

inline void check_layer_norm(const NormSpec& norm, double eps) {
  CHECK(norm.kind == NormKind::kLayer);
  CHECK(norm.eps == eps);
  CHECK(norm.weight);
  CHECK(norm.bias);
  CHECK(norm.weight_offset == 0);
}

// Returns the message that refuses such a config.json.
inline std::string refusal(const std::string& family, const nlohmann::json& changes) {
  try {
    parse_family(family, changes);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Checks that each change is refused with a message that contains the text.
inline void check_refusals(const std::string& family,
                           const std::vector<std::pair<nlohmann::json, std::string>>& changes) {
  for (const auto& [change, text] : changes) {
    const std::string message = refusal(family, change);
    INFO(family << ": " << message);
    CHECK(message.find(text) != std::string::npos);
  }
}

// Checks names of parameters in both directions.
inline void check_names(const ModelSpec& spec,
                        const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [canonical, stored] : names) {
    CHECK(stored_name(spec, canonical) == stored);
    CHECK(canonical_name(spec, stored) == canonical);
  }
}

inline Windows windows(const ModelSpec& spec) {
  Windows windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.window);
  return windows;
}

// Returns a letter for each layer: G and L for global and local rotary embeddings, - for none.
inline std::string ropes(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers) text += "-GL"[static_cast<int>(layer.rope)];
  return text;
}

}  // namespace zeroth::model
