#include "base/restart_attempt.h"

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth {
namespace {

constexpr const char* kIndex = "ZEROTH_ROUND";
constexpr const char* kCause = "ZEROTH_ROUND_CAUSE";
constexpr const char* kRun = "ZEROTH_RUN";

constexpr int64_t kMaxAttempts = 1'000'000;
constexpr size_t kRunDigits = 16;

std::string parse_cause(const EnvReader& reader) {
  const std::string value = reader.text(kCause).value_or("");
  if (value.size() <= kMaxCauseBytes && value.find_first_of("\r\n") == std::string::npos)
    return printable(value);
  throw Error("environment variable {} is not one line of at most {} bytes", reader.quote(kCause),
              kMaxCauseBytes);
}

std::string parse_run_id(const EnvReader& reader) {
  const std::string value = reader.text(kRun).value_or("");
  const bool digits = value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (value.empty() || (digits && value.size() == kRunDigits)) return value;
  throw Error("environment variable {} is not {} hex digits (0-9, a-f)", reader.quote(kRun),
              kRunDigits);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> restart_variables(const RestartAttempt& attempt) {
  if (attempt.run.empty()) return {};
  std::vector<std::pair<std::string, std::string>> variables = {
      {kRun, attempt.run}, {kIndex, std::to_string(attempt.index)}};
  if (attempt.index > 0) variables.emplace_back(kCause, attempt.cause);
  return variables;
}

RestartAttempt parse_restart_attempt(const EnvLookup& lookup) {
  const EnvReader reader(lookup, EnvReader::RangeMessage::kBothLimits);
  const auto index = reader.number<int64_t>(kIndex, 0, kMaxAttempts);
  const auto restarts = reader.number<int64_t>("TORCHELASTIC_RESTART_COUNT", 0, kMaxAttempts);
  RestartAttempt attempt;
  attempt.run = parse_run_id(reader);
  attempt.is_tracked = index || restarts || !attempt.run.empty();
  attempt.index = index.value_or(restarts.value_or(0));
  attempt.is_global = index.has_value();
  attempt.resumes = attempt.index > 0;
  if (index && *index > 0) attempt.cause = parse_cause(reader);
  return attempt;
}

}  // namespace zeroth
