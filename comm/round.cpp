#include "comm/round.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "base/units.h"

namespace zeroth::comm {
namespace {

constexpr const char* kNumber = "ZEROTH_ROUND";
constexpr const char* kCause = "ZEROTH_ROUND_CAUSE";
constexpr const char* kRun = "ZEROTH_RUN";
constexpr const char* kRestarts = "TORCHELASTIC_RESTART_COUNT";

constexpr int64_t kMostRounds = 1'000'000;
constexpr size_t kLongestCause = 400;
constexpr size_t kRunDigits = 16;

std::optional<std::string> text(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> count(const Variables& variables, const char* name) {
  const auto value = text(variables, name);
  if (!value) return std::nullopt;
  const auto number = parse_number<int64_t>(*value);
  if (number && *number >= 0 && *number <= kMostRounds) return number;
  throw Error("environment variable {}={} is not a number from 0 to {}", name, shortened(*value),
              kMostRounds);
}

std::string cause_of(const Variables& variables) {
  const std::string value = text(variables, kCause).value_or("");
  if (value.size() <= kLongestCause && value.find_first_of("\r\n") == std::string::npos)
    return printable(value);
  throw Error("environment variable {}={} is not one line of at most {} bytes", kCause,
              shortened(value), kLongestCause);
}

std::string run_of(const Variables& variables) {
  const std::string value = text(variables, kRun).value_or("");
  const bool digits = value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (value.empty() || (digits && value.size() == kRunDigits)) return value;
  throw Error("environment variable {}={} is not {} hex digits (0-9, a-f)", kRun, shortened(value),
              kRunDigits);
}

}  // namespace

const std::vector<std::string>& round_variables() {
  static const std::vector<std::string> names = {kNumber, kCause, kRun, kRestarts};
  return names;
}

Round round_of(const Variables& variables) {
  Round round;
  const auto number = count(variables, kNumber);
  const auto restarts = count(variables, kRestarts);
  round.run = run_of(variables);
  round.told = number || restarts || !round.run.empty();
  round.number = number.value_or(restarts.value_or(0));
  round.counted = number.has_value();
  round.goes_on = round.number > 0;
  if (number && *number > 0) round.cause = cause_of(variables);
  return round;
}

}  // namespace zeroth::comm
