// A flag whose value is one of a few words.
#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/printable.h"

namespace zeroth::trainer {

// Returns the value paired with `text`; appends an error that lists all words if there is none.
// Returns nothing if `text` is empty or another flag is in its place.
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
