// Environment variables as texts and numbers, and a check for empty ones. Pure.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text/units.h"

namespace zeroth {

// Returns the value of a variable, or null: getenv or a substitute for it.
using EnvLookup = std::function<const char*(const char* name)>;

// EnvReader reads variables. An empty variable counts as not set. Each Error names the variable and
// its value.
class EnvReader {
 public:
  // What an Error says about the range of a number.
  enum class RangeMessage { kOneLimit, kBothLimits };  // "at least 1", "from 1 to 8"

  explicit EnvReader(EnvLookup lookup, RangeMessage range_message = RangeMessage::kOneLimit)
      : lookup_(std::move(lookup)), range_message_(range_message) {}

  std::optional<std::string> text(const char* name) const;
  bool has(const char* name) const { return text(name).has_value(); }
  // Returns "RANK=3", for example.
  std::string quote(const char* name) const;

  // Throws an Error if the variable is set but no number from `min` to `max`.
  template <typename Number = int>
  std::optional<Number> number(const char* name, Number min,
                               Number max = std::numeric_limits<Number>::max()) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_number<Number>(*value);
    const bool is_below = !number || *number < min;
    if (!is_below && !(*number > max)) return number;
    if (range_message_ == RangeMessage::kBothLimits)
      reject_number(name, fmt::format("from {} to {}", min, max));
    reject_number(
        name, is_below ? fmt::format("of at least {}", min) : fmt::format("of at most {}", max));
  }

 private:
  [[noreturn]] void reject_number(const char* name, std::string_view expected) const;

  EnvLookup lookup_;
  RangeMessage range_message_;
};

// Throws a UsageError that names all variables that Zeroth reads and that are set but empty. A
// script that expands an unset variable sets them like that, and treating them as unset would
// silently change the run. Variables whose emptiness has a meaning are exempt
// (CUDA_VISIBLE_DEVICES: no GPU).
void reject_empty_variables(const EnvLookup& lookup);

// Returns whether reject_empty_variables() checks the variable `name`.
bool must_not_be_empty(std::string_view name);

}  // namespace zeroth
