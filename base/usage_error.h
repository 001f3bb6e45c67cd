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

// The exit code that says so, as argparse and many others have it: no further round begins.
inline constexpr int kUsageCode = 2;

}  // namespace zeroth
