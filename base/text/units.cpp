#include "base/text/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace zeroth {
namespace {

// Formats `value` with three significant digits after dividing it by `base` until it is smaller.
std::string scaled(double value, double base, const std::array<const char*, 5>& suffixes) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < suffixes.size()) {
    value /= base;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}{}", value, suffixes[0]);
  const int decimals = std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, suffixes[unit]);
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024.0, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string format_count(int64_t count) {
  return scaled(static_cast<double>(count), 1000.0, {"", "K", "M", "B", "T"});
}

std::string format_duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string pluralize(int64_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

std::string_view next_field(std::string_view& text, char separator) {
  const std::string_view field = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), field.size() + 1));
  return field;
}

double canonicalize_nan(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

}  // namespace zeroth
