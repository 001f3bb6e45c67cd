#include "checkpoint/names.h"

#include <fmt/format.h>

#include "base/text/units.h"

namespace zeroth::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTrainerStep = "checkpoint-";

// Parses a number up to kMaxCount in its canonical form: no sign, no leading zeros.
std::optional<int64_t> parse_natural(std::string_view text) {
  const auto number = parse_number<int64_t>(text);
  if (!number || *number < 0 || *number > kMaxCount) return std::nullopt;
  return fmt::format("{}", *number) == text ? number : std::nullopt;
}

std::optional<int64_t> behind(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? parse_natural(name.substr(prefix.size())) : std::nullopt;
}

}  // namespace

std::string to_string(const SaveAttempt& attempt) {
  return fmt::format("{}.{}", attempt.generation, attempt.index);
}

SaveAttempt parse_attempt(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == text.npos) return {};
  const auto generation = parse_natural(text.substr(0, dot)),
             number = parse_natural(text.substr(dot + 1));
  return generation && number ? SaveAttempt{*generation, *number} : SaveAttempt{};
}

std::string step_name(int64_t step) {
  return fmt::format("{}{}", kStep, step);
}

std::optional<int64_t> parse_step(std::string_view name) {
  return behind(kStep, name);
}

std::optional<int64_t> parse_trainer_step(std::string_view name) {
  return behind(kTrainerStep, name);
}

std::optional<int64_t> step_from_path(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto step = parse_step(name);
  return step ? step : parse_old_step(name);
}

std::string temporary_name(int64_t step, const SaveAttempt& attempt) {
  return fmt::format("{}{}-{}", kTemporary, step_name(step), to_string(attempt));
}

std::optional<int64_t> parse_old_step(std::string_view name) {
  if (!name.starts_with(kOld)) return std::nullopt;
  name.remove_prefix(kOld.size());
  return parse_step(name.substr(0, name.rfind('-')));
}

std::optional<int64_t> parse_owner_generation(std::string_view name) {
  return behind(kOwner, name);
}

}  // namespace zeroth::checkpoint
