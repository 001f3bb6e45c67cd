// The rows of the key table, one function per part of the file. Only keys.cpp joins them.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "configs/schema/keys.h"

namespace zeroth::configs {

std::vector<Key> training_rows();  // batch, precision, recompute
std::vector<Key> update_rows();    // optimizer, scheduler
std::vector<Key> zero_rows();      // zero_optimization
std::vector<Key> offload_rows();   // zero_optimization.offload_*, aio
std::vector<Key> gradient_rows();  // how gradients are summed, data types
std::vector<Key> report_rows();    // printing, monitors, profilers
std::vector<Key> other_rows();     // everything else of DeepSpeed's schema

using enum KeyType;
using enum KeyState;

inline constexpr std::string_view kDefault = "the default";
inline constexpr std::string_view kDtypes =
    "\"fp32\" | \"fp16\" | \"bf16\" | \"float32\" | \"float16\" | \"bfloat16\"";

// One after the other.
std::vector<Key> joined(std::initializer_list<std::vector<Key>> parts);

constexpr Key section(std::string_view path, std::string_view text) {
  return {path, kSection, kHonoured, "null", {}, {}, text};
}

constexpr Key honoured(std::string_view path, KeyType type, std::string_view fallback,
                       std::string_view accepts, std::string_view text) {
  return {path, type, kHonoured, fallback, accepts, kDefault, text};
}

constexpr Key no_effect(std::string_view path, KeyType type, std::string_view fallback,
                        std::string_view text, std::string_view accepts = {}) {
  return {path, type, kNoEffect, fallback, accepts, kDefault, text};
}

constexpr Key refused(std::string_view path, std::string_view fallback, std::string_view text,
                      std::string_view accepts = {}) {
  return {path, kString, kRefused, fallback, accepts, {}, text};
}

constexpr Key refused_section(std::string_view path, std::string_view off, std::string_view inside,
                              std::string_view text) {
  return {path, kSection, kRefused, "null", off, {}, text, inside};
}

// A section that is accepted while it is on, too. Its values are not read.
constexpr Key idle_section(std::string_view path, std::string_view off, std::string_view inside,
                           std::string_view text) {
  return {path, kSection, kNoEffect, "null", off, {}, text, inside};
}

// The case of letters does not matter.
constexpr Key in_any_case(Key key) {
  key.any_case = true;
  return key;
}

}  // namespace zeroth::configs
