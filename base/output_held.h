// Another run writes into an output.
#pragma once

#include "base/error.h"

namespace zeroth {

// It may end at any time: trying again may mend this one.
class OutputHeld : public Error {
 public:
  using Error::Error;
};

}  // namespace zeroth
