#include "checkpoint/counters.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json/json_view.h"
#include "base/text/printable.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

// Limits of an integer counter. kStep stands for the step of the checkpoint.
constexpr int64_t kStep = -2;
struct Limits {
  std::string_view key;
  int64_t min, max;
};
constexpr Limits kIntegers[] = {
    {"steps", kStep, kStep},
    {"applied_updates", 0, kStep},
    {"usual_divisor", 0, kMaxCount},
    {"loss_scale.hysteresis_left", 0, INT64_MAX},
    {"loss_scale.step", 0, kStep},
    {"loss_scale.last_overflow", -1, kStep},
    {"not_finite.in_a_row", 0, kStep},
    {"not_finite.first_step", 0, kStep},
    {"not_finite.in_one", 0, 1},
    {"plateau.bad", 0, kMaxCount},
    {"plateau.cooldown", 0, INT64_MAX},
};
constexpr std::string_view kScale = "loss_scale.scale";

std::string describe(const Counter& counter) {
  const auto* const text = std::get_if<std::string>(&counter);
  return text == nullptr ? to_string(counter) : fmt::format("\"{}\"", shortened(*text));
}

}  // namespace

std::string to_string(const Counter& counter) {
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, counter);
}

nlohmann::ordered_json to_json(const Counter& counter) {
  const auto* const number = std::get_if<double>(&counter);
  if (number != nullptr && !std::isfinite(*number)) return {{"double", exact_number(*number)}};
  return std::visit([](const auto& value) { return nlohmann::ordered_json(value); }, counter);
}

Counter parse_counter(const JsonView& view) {
  const nlohmann::json& value = view.json();
  if (value.is_string()) return view.text();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number()) {
    return view.integer(std::numeric_limits<int64_t>::min() + 1,
                        std::numeric_limits<int64_t>::max());
  }
  if (!value.is_object()) view.refuse("a number or a string");
  const JsonView name = view.at("double");
  const auto number = parse_non_finite(name.text());
  if (!number) name.refuse("inf, -inf, nan or -nan");
  return *number;
}

std::string validation_error(const Counters& counters, int64_t step) {
  const auto in_steps = [step](int64_t limit) { return limit == kStep ? step : limit; };
  for (const Limits& limits : kIntegers) {
    const auto found = counters.find(std::string(limits.key));
    if (found == counters.end()) continue;
    const int64_t min = in_steps(limits.min), max = in_steps(limits.max);
    const auto* const value = std::get_if<int64_t>(&found->second);
    if (value != nullptr && *value >= min && *value <= max) continue;
    return fmt::format("counters.{} is {}, expected an integer in {}..{}{}", limits.key,
                       describe(found->second), min, max,
                       limits.max == kStep ? ", as step is " + fmt::format("{}", step) : "");
  }
  const auto scale = counters.find(std::string(kScale));
  if (scale == counters.end()) return "";
  const auto* const value = std::get_if<double>(&scale->second);
  if (value != nullptr && *value > 0) return "";
  return fmt::format("counters.{} is {}, expected a number above 0", kScale,
                     describe(scale->second));
}

}  // namespace zeroth::checkpoint
