// The message and exit code of `main` when a run ends early.
#pragma once

#include <exception>
#include <string>

#include "base/files/output_guard.h"
#include "base/usage_error.h"
#include "comm/bootstrap/restart_attempt.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::trainer {

inline constexpr int kUserErrorCode = 1;
inline constexpr int kSignalCode = 128;        // plus the signal's number, as shells do
inline constexpr int kInternalErrorCode = 70;  // EX_SOFTWARE of sysexits.h

struct Failure {
  int code = 0;
  std::string message;  // with its newline; "finetune: error: ..."
};

// Describes `error`. The message begins with `rank` if the world has more than one.
Failure describe(std::exception_ptr error, int rank, int world_size);

// Returns the result of `read`, which reads the user's input. Rethrows its Error as a UsageError,
// since a restart would find it again. Does not do so if another run uses the output, nor in a
// later restart attempt: the same input was valid before, so something else has changed, and may
// change back.
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
