// Host memory that was asked for and not given.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace zeroth {

class OutOfHostMemory : public Error {
 public:
  // `message` names the bytes and the system's reason.
  OutOfHostMemory(int64_t bytes, const std::string& message) : Error(message), bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
};

}  // namespace zeroth
