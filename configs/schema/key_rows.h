// The rows of the key table, one function per part of the file. Only keys.cpp concatenates them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "configs/schema/field.h"
#include "configs/schema/keys.h"

namespace zeroth::configs {

std::vector<ConfigKey> training_rows();  // batch, precision, recompute
std::vector<ConfigKey> update_rows();    // optimizer, scheduler
std::vector<ConfigKey> zero_rows();      // zero_optimization
std::vector<ConfigKey> offload_rows();   // zero_optimization.offload_*, aio
std::vector<ConfigKey> gradient_rows();  // how gradients are summed, data types
std::vector<ConfigKey> lora_rows();      // lora, quantization
std::vector<ConfigKey> report_rows();    // printing, monitors, profilers
std::vector<ConfigKey> other_rows();     // everything else of DeepSpeed's schema

using enum KeyType;
using enum KeyState;
using enum OnResume;

inline constexpr std::string_view kDefault = "the default";
inline constexpr std::string_view kDtypes =
    "\"fp32\" | \"fp16\" | \"bf16\" | \"float32\" | \"float16\" | \"bfloat16\"";

// Returns the concatenation of all parts.
std::vector<ConfigKey> joined(std::initializer_list<std::vector<ConfigKey>> parts);

// Properties that few rows have.
struct RowOptions {
  std::optional<std::string_view> auto_value = {};  // unset: the flag, or without one the default
  std::string_view flag = {};
  OnResume on_resume = kAsSection;
};

constexpr ConfigKey section(std::string_view path, std::string_view text,
                            OnResume on_resume = kAsSection) {
  return {.path = path,
          .field = {kSection},
          .default_value = "null",
          .text = text,
          .on_resume = on_resume};
}

constexpr ConfigKey honored(std::string_view path, Field field, std::string_view default_value,
                            std::string_view accepts, std::string_view text,
                            const RowOptions& options = {}) {
  return {.path = path,
          .field = field,
          .default_value = default_value,
          .accepts = accepts,
          .auto_value = options.auto_value.value_or(options.flag.empty() ? kDefault : options.flag),
          .text = text,
          .flag = options.flag,
          .on_resume = options.on_resume};
}

constexpr ConfigKey no_effect(std::string_view path, KeyType type, std::string_view default_value,
                              std::string_view text, std::string_view accepts = {}) {
  return {path, {type}, kNoEffect, default_value, accepts, kDefault, text};
}

constexpr ConfigKey refused(std::string_view path, std::string_view default_value,
                            std::string_view text, std::string_view accepts = {}) {
  return {path, {kString}, kRefused, default_value, accepts, {}, text};
}

constexpr ConfigKey refused_section(std::string_view path, std::string_view off,
                                    std::string_view allowed_keys, std::string_view text) {
  ConfigKey key = section(path, text);
  key.state = kRefused;
  key.accepts = off;
  key.allowed_keys = allowed_keys;
  return key;
}

// Returns a section that is accepted even when it is enabled. Its values are not read.
constexpr ConfigKey idle_section(std::string_view path, std::string_view off,
                                 std::string_view allowed_keys, std::string_view text) {
  ConfigKey key = refused_section(path, off, allowed_keys, text);
  key.state = kNoEffect;
  return key;
}

// Returns `key` with the reason for which it accepts no other values.
constexpr ConfigKey refusing_others(ConfigKey key, std::string_view reason) {
  key.other_values = reason;
  return key;
}

// Returns `key` with a value whose case does not matter.
constexpr ConfigKey ignoring_case(ConfigKey key) {
  key.any_case = true;
  return key;
}

}  // namespace zeroth::configs
