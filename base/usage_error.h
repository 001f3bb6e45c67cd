// Errors in what a user wrote: a command line, or a file that it names. A retry cannot succeed.
#pragma once

#include "base/error.h"

namespace zeroth {

// A UsageError reports invalid user input. Its message says what to write instead.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Returns the result of `read`, which parses user input, and rethrows its Errors as UsageErrors.
template <typename Read>
auto rethrow_as_usage_error(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

// Exit code of a usage error, the same as argparse's. The launcher starts no further restart
// attempt.
inline constexpr int kUsageExitCode = 2;

}  // namespace zeroth
