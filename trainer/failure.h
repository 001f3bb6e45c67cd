// What `main` tells when a run ends early.
#pragma once

#include <exception>
#include <string>

#include "base/output_guard.h"
#include "base/usage_error.h"
#include "comm/restart_attempt.h"
#include "model/hf/temporary_directory.h"

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

// What `read` returns, which looks at what the user wrote: its Error is a UsageError, for it would
// be found again. Not where another run may end, nor in a later round, where the same was right
// before: there something else has changed, and may change back.
template <typename Read>
auto rethrow_as_usage_error(const comm::RestartAttempt& attempt, const Read& read) {
  try {
    return model::with_path_errors(read);
  } catch (const OutputInUse&) {
    throw;
  } catch (const Error& error) {
    if (attempt.index > 0) throw;
    throw UsageError("{}", error.what());
  }
}

}  // namespace zeroth::trainer
