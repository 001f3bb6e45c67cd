// Two kinds of failure. `Error` is a failure outside this program (config, file, peer). Its message
// names the key or path, the rank if one is known, and both values. `InternalError`, which
// ZEROTH_CHECK throws, is a bug of this program. Only `main` catches them to print.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace zeroth {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}

  template <typename First, typename... Rest>
  Error(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : std::runtime_error(
            fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

// A UsageError reports invalid user input: a command line, or a file that it names. Its message
// says what to write instead. A retry cannot succeed.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Exit code of a usage error, the same as argparse's. The launcher starts no further restart
// attempt.
inline constexpr int kUsageExitCode = 2;

// Returns the result of `read`, which parses user input, and rethrows its Errors as UsageErrors.
template <typename Read>
auto rethrow_as_usage_error(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Returns the message of an Error or InternalError, and the path and the system's reason of a
// failure of a file system or the system. Quotes the text of any other exception as that of an
// unexpected failure: a user never sees the standard library's own text.
std::string describe_exception(const std::exception& error);

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& message);
}  // namespace detail

}  // namespace zeroth

// Throws an InternalError if an invariant of this program is broken. The message, formatted as by
// fmt, should contain both operands.
#define ZEROTH_CHECK(condition, ...)                                                              \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ::zeroth::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)
