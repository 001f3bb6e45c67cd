// What `main` tells when a run ends early.
#pragma once

#include <exception>
#include <string>

namespace zeroth::trainer {

inline constexpr int kUserErrorCode = 1;
inline constexpr int kSignalCode = 128;        // plus the signal's number, as shells do
inline constexpr int kInternalErrorCode = 70;  // EX_SOFTWARE of sysexits.h

struct Failure {
  int code = 0;
  std::string message;  // with its line end; "finetune: error: ..."
};

// `rank` starts the message when the world has more than one.
Failure describe(std::exception_ptr error, int rank, int world_size);

}  // namespace zeroth::trainer
