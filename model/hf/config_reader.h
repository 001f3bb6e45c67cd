// A ConfigReader gives typed access to the keys of a config.json. It collects errors instead of
// throwing at the first.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/printable.h"

namespace zeroth::model {

struct ModelSpec;
struct QuantizationSpec;
struct RopeSpec;

class ConfigReader {
 public:
  // Max of any size of a model. Products of three sizes are far from overflow.
  static constexpr int64_t kMaxSize = int64_t{1} << 31;

  // `object` must outlive the reader. `prefix` ("rope_scaling.") is prepended to the names of keys
  // in messages.
  explicit ConfigReader(const nlohmann::json& object, std::string prefix = "");

  // Returns the value, or the fallback if the key is absent or null; adds an error and returns 0 if
  // there is no fallback.
  int64_t size(const std::string& key, std::optional<int64_t> fallback = std::nullopt,
               int64_t max = kMaxSize);  // in 1..max
  double number(const std::string& key, std::optional<double> fallback = std::nullopt);
  double positive(const std::string& key, std::optional<double> fallback = std::nullopt);
  // Returns `count` numbers above 0; otherwise adds an error and returns none.
  std::vector<double> positives(const std::string& key, int64_t count);
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, std::optional<std::string> fallback = std::nullopt);
  bool has(const std::string& key) const { return object_.contains(key); }  // also when null
  bool is_null(const std::string& key);                                     // and not absent
  // Returns null when the key is absent or null.
  const nlohmann::json* find(const std::string& key);
  // Returns whether a call of this object has named the key.
  bool was_read(const std::string& key) const { return seen_keys_.contains(key); }

  // Adds an error unless the key is absent, null, or equal to `harmless`.
  void require(const std::string& key, const nlohmann::json& harmless);
  // Adds an error unless the key is absent, null, false, zero or empty.
  void reject(const std::string& key);

  // Returns the value that `table` has for `name`, the text of a key; otherwise adds an error that
  // lists the names in `supported`, and returns the first one of T.
  template <typename T, size_t kSize>
  T choose(const std::string& key, const std::string& name,
           const std::pair<std::string_view, T> (&table)[kSize], std::string_view supported) {
    for (const auto& [known, value] : table) {
      if (known == name) return value;
    }
    add_error(key, "is \"{}\"; supported are {}", shortened(name), supported);
    return T();
  }

  template <typename... Args>
  void add_error(const std::string& key, fmt::format_string<Args...> reason, Args&&... args) {
    errors_.push_back(prefix_ + key + " " + fmt::format(reason, std::forward<Args>(args)...));
  }
  void add(const ConfigReader& nested);  // adds its errors and unknown keys
  // Adds the keys that no call above has named to unknown_keys().
  void collect_unknown_keys(const std::set<std::string>& harmless);

  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& unknown_keys() const { return unknown_keys_; }

 private:
  // Returns the value of the key, or the fallback. Adds an error for a value of another type, and
  // if the key is missing without a fallback.
  template <typename T>
  T read(const std::string& key, const std::optional<T>& fallback,
         bool (nlohmann::json::*has_type)() const noexcept, const char* expected);

  const nlohmann::json& object_;
  std::string prefix_;
  std::set<std::string> seen_keys_;
  std::vector<std::string> errors_;
  std::vector<std::string> unknown_keys_;
};

// What families do not share of the rotary part of config.json.
struct RopeKeys {
  double theta = 10000;  // if it is missing
  const char* theta_key = "rope_theta";
  bool is_partial = false;    // a part of each head may rotate
  double partial_factor = 1;  // if it is missing
  const char* partial_key = "partial_rotary_factor";
  bool interleaved = false;
  bool has_sections = false;  // mrope_section, which only inputs other than text depend on
  // Not null: rope_parameters has an object for each type of layer, and this one is read;
  // rope_scaling adds to that of full_attention.
  const char* layer_type = nullptr;
  std::optional<int64_t> context = {};  // original_max_position_embeddings if it is missing
  // JSON of rope_parameters, or of its object for the layer type, if it is missing.
  const char* parameters = nullptr;
  bool has_alpha = false;         // of dynamic scaling: a constant factor of theta (Hunyuan)
  bool yarn_is_longrope = false;  // "yarn" and "su" are older names of longrope (Phi 3)
};

// Reads the rotary part of config.json, in its old and its new spelling (spec_rope.cpp): theta,
// the share of each head that rotates, rope_scaling and rope_parameters; errors are added to
// `config`.
RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_positions,
                   const RopeKeys& keys = {});

// Reads quantization_config (spec_quantization.cpp); errors are added to `config`. `spec` has all
// other keys. Returns nullopt if the model's files are not quantized.
std::optional<QuantizationSpec> read_quantization(ConfigReader& config, const ModelSpec& spec);

}  // namespace zeroth::model
