// What a person wrote is wrong: a command line, or a file that it names. Trying again mends
// nothing.
#pragma once

#include "base/error.h"

namespace zeroth {

// The message says what to write instead.
class UsageError : public Error {
 public:
  using Error::Error;
};

// What `read` returns; an Error that it throws becomes one of these: it reads what a person wrote.
template <typename Read>
auto rethrow_as_usage_error(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

// The exit code that says so, as argparse and many others have it: no further round begins.
inline constexpr int kUsageExitCode = 2;

}  // namespace zeroth
