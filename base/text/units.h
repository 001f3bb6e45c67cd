// Formatting and parsing of numbers for people.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth {

// Returns "512 B", "1.5 KiB", "35.2 MiB" or "1.10 GiB".
std::string format_bytes(int64_t bytes);

// Returns "950", "31.6K", "31.6M" or "1.10B", for counts of parameters and tokens.
std::string format_count(int64_t count);

// Returns "0.8s", "42s", "3m05s" or "2h07m".
std::string format_duration(double seconds);

// Returns "1 rank" or "3 ranks", for words with a regular plural.
std::string pluralize(int64_t count, std::string_view word);

// Returns "SIGTERM", or "signal 36" for a signal without a name.
std::string signal_name(int signal);

// Returns two hexadecimal digits per byte: "0a1b".
std::string to_hex(std::string_view bytes);

// Returns the text before `separator` and removes both from `text`.
std::string_view next_field(std::string_view& text, char separator);

// Parses the whole text as a number. Returns nullopt if it is none or does not fit the type.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

// Returns a NaN that prints as "nan" on every CPU for any NaN, and other values unchanged. The sign
// of a NaN depends on the instruction that produced it and has no meaning.
double canonicalize_nan(double value);

}  // namespace zeroth
