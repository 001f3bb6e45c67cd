#include "trainer/flags/number_option.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <system_error>

#include "base/text/printable.h"

namespace zeroth::trainer {
namespace {

// Parses the full text. Returns invalid_argument also if something follows the number.
template <typename T>
std::errc parse_full(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return rest == end ? error : std::errc::invalid_argument;
}

// Returns whether another flag is in the place of a value; parse_flags reports it.
bool is_flag(const std::string& text) {
  return text.starts_with("--");
}

}  // namespace

void NumberOptions::add(const std::string& name, std::optional<int64_t>& value, int64_t max,
                        const std::string& help) {
  const auto read = [&errors = errors_, name, &value, max](const CLI::results_t& results) {
    const std::string& text = results.front();
    int64_t number = 0;
    const std::errc error = parse_full(text, number);
    if (is_flag(text)) return true;
    if (error == std::errc::invalid_argument) {
      errors.push_back(fmt::format("{} {}: must be a whole number", name, shortened(text)));
    } else if ((error == std::errc::result_out_of_range && text[0] != '-') || number > max) {
      errors.push_back(fmt::format("{} {}: must be at most {}", name, shortened(text), max));
    } else if (error != std::errc{}) {
      errors.push_back(fmt::format("{} {}: is too small", name, shortened(text)));
    } else {
      value = number;
    }
    return true;
  };
  app_.add_option(name, CLI::callback_t(read), help)->option_text("N");
}

void NumberOptions::add(const std::string& name, std::optional<double>& value,
                        const std::string& help) {
  const auto read = [&errors = errors_, name, &value](const CLI::results_t& results) {
    const std::string& text = results.front();
    double number = 0;
    const std::errc error = parse_full(text, number);
    if (error == std::errc{}) {
      value = number;
    } else if (!is_flag(text)) {
      errors.push_back(fmt::format("{} {}: must be a number", name, shortened(text)));
    }
    return true;
  };
  app_.add_option(name, CLI::callback_t(read), help)->option_text("X");
}

}  // namespace zeroth::trainer
