// The rows of the key table, one function per part of the file. Only keys.cpp joins them.
#pragma once

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

constexpr Key section(std::string_view path, std::string_view text) {
  return {path, KeyType::kSection, KeyState::kHonoured, "null", {}, {}, text};
}

constexpr Key honoured(std::string_view path, KeyType type, std::string_view fallback,
                       std::string_view accepts, std::string_view text) {
  return {path, type, KeyState::kHonoured, fallback, accepts, "the default", text};
}

constexpr Key no_effect(std::string_view path, KeyType type, std::string_view fallback,
                        std::string_view text) {
  return {path, type, KeyState::kNoEffect, fallback, {}, "the default", text};
}

constexpr Key refused(std::string_view path, std::string_view fallback, std::string_view text,
                      std::string_view accepts = {}) {
  return {path, KeyType::kString, KeyState::kRefused, fallback, accepts, {}, text};
}

constexpr Key refused_section(std::string_view path, std::string_view off, std::string_view inside,
                              std::string_view text) {
  return {path, KeyType::kSection, KeyState::kRefused, "null", off, {}, text, inside};
}

}  // namespace zeroth::configs
