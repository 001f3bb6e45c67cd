// A flag whose value is one of a few words.
#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace zeroth::trainer {

// The value that stands beside `text`; a complaint that lists all of them where none does. Nothing
// where no text is given, or another flag stands in its place.
template <typename T>
std::optional<T> parse_choice(const char* name, const std::string& text,
                              const std::vector<std::pair<std::string_view, T>>& values,
                              std::vector<std::string>& errors) {
  if (text.empty() || text.starts_with("--")) return std::nullopt;
  std::vector<std::string_view> words;
  for (const auto& [word, value] : values) {
    if (word == text) return value;
    words.push_back(word);
  }
  errors.push_back(
      fmt::format("{} {}: must be one of {}", name, shortened(text), fmt::join(words, ", ")));
  return std::nullopt;
}

}  // namespace zeroth::trainer
