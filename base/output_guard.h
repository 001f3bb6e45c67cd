// An output has one run that writes there, and of that run one round.
#pragma once

#include <functional>

#include "base/error.h"

namespace zeroth {

// Another run writes into an output. It may end at any time: trying again may mend this one.
class OutputInUse : public Error {
 public:
  using Error::Error;
};

// A later round of this process's run writes there by now: nothing of this process may appear.
class OutputTakenOver : public Error {
 public:
  using Error::Error;
};

// Throws an OutputTakenOver where that is so. Asked as late as can be: when all is written and
// nothing is left to do but to give it its name. Empty: nobody else can come.
using OutputGuard = std::function<void()>;

}  // namespace zeroth
