// Two kinds of failure. `Error` is the user's world going wrong (config, file, peer): the message
// names the key or path, the rank where one is known, and both values. `InternalError`, raised by
// ZEROTH_CHECK, is a bug of ours. Only `main` catches to print.
#pragma once

#include <fmt/format.h>

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

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& message);
}  // namespace detail

}  // namespace zeroth

// A broken invariant of this program. The message, formatted as by fmt, should hold both operands.
#define ZEROTH_CHECK(condition, ...)                                                              \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ::zeroth::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)
