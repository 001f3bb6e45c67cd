#include "comm/bootstrap/restart_attempt.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::comm {
namespace {

constexpr const char* kIndex = "ZEROTH_ROUND";
constexpr const char* kCause = "ZEROTH_ROUND_CAUSE";
constexpr const char* kRun = "ZEROTH_RUN";
constexpr const char* kRestarts = "TORCHELASTIC_RESTART_COUNT";

constexpr int64_t kMaxAttempts = 1'000'000;
constexpr size_t kMaxCauseBytes = 400;
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
  if (number && *number >= 0 && *number <= kMaxAttempts) return number;
  throw Error("environment variable {}={} is not a number from 0 to {}", name, shortened(*value),
              kMaxAttempts);
}

std::string parse_cause(const Variables& variables) {
  const std::string value = text(variables, kCause).value_or("");
  if (value.size() <= kMaxCauseBytes && value.find_first_of("\r\n") == std::string::npos)
    return printable(value);
  throw Error("environment variable {}={} is not one line of at most {} bytes", kCause,
              shortened(value), kMaxCauseBytes);
}

std::string parse_run_id(const Variables& variables) {
  const std::string value = text(variables, kRun).value_or("");
  const bool digits = value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (value.empty() || (digits && value.size() == kRunDigits)) return value;
  throw Error("environment variable {}={} is not {} hex digits (0-9, a-f)", kRun, shortened(value),
              kRunDigits);
}

}  // namespace

const std::vector<std::string>& restart_attempt_variables() {
  static const std::vector<std::string> names = {kIndex, kCause, kRun, kRestarts};
  return names;
}

RestartAttempt parse_restart_attempt(const Variables& variables) {
  RestartAttempt attempt;
  const auto number = count(variables, kIndex);
  const auto restarts = count(variables, kRestarts);
  attempt.run = parse_run_id(variables);
  attempt.is_tracked = number || restarts || !attempt.run.empty();
  attempt.index = number.value_or(restarts.value_or(0));
  attempt.is_global = number.has_value();
  attempt.resumes = attempt.index > 0;
  if (number && *number > 0) attempt.cause = parse_cause(variables);
  return attempt;
}

}  // namespace zeroth::comm
