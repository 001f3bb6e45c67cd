// Numbers as a person reads and writes them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zeroth {

// "512 B", "1.5 KiB", "35.2 MiB", "1.10 GiB".
std::string format_bytes(int64_t bytes);

// "950", "31.6K", "31.6M", "1.10B": counts of parameters and tokens.
std::string format_count(int64_t count);

// "0.8s", "42s", "3m05s", "2h07m".
std::string format_duration(double seconds);

// "1 rank", "3 ranks": of words that take an s.
std::string pluralize(int64_t count, std::string_view word);

// "SIGTERM"; "signal 36" of those without a name.
std::string signal_name(int signal);

// The number that the whole text is; nothing where it is none, or one that the type does not hold.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

// A NaN prints as "nan" then on every processor: which sign one has depends on the instruction that
// made it, and means nothing.
double canonicalize_nan(double value);

}  // namespace zeroth
