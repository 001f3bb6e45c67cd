// Errors and a check for exclusive access to an output: one run, and one restart attempt of it, may
// write there.
#pragma once

#include <functional>

#include "base/error.h"

namespace zeroth {

// OutputInUse reports that another run writes to an output. That run may exit at any time, so a
// retry can succeed.
class OutputInUse : public Error {
 public:
  using Error::Error;
};

// OutputTakenOver reports that a later restart attempt of this run now writes to the output, so
// this process must publish nothing.
class OutputTakenOver : public Error {
 public:
  using Error::Error;
};

// An OutputGuard throws an OutputTakenOver if this process has lost the output. Callers invoke it
// as late as possible: after all data is written, just before the final rename. An empty guard
// means that no other process can write there.
using OutputGuard = std::function<void()>;

}  // namespace zeroth
