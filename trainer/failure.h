// The message and exit code of `main` when a run ends early, and what is known of a failed
// allocation.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/output_lock.h"
#include "base/machine/host_limits.h"
#include "base/restart_attempt.h"
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
auto rethrow_as_usage_error(const RestartAttempt& attempt, const Read& read) {
  try {
    return model::with_path_errors(read);
  } catch (const OutputInUse&) {
    throw;
  } catch (const Error& error) {
    if (attempt.index > 0) throw;
    throw UsageError("{}", error.what());
  }
}

// Known facts about a failed allocation; sizes in bytes.
struct FailedAllocation {
  bool on_gpu = false;
  std::optional<int64_t> requested = {};
  std::optional<int64_t> free = {};
  std::string limit = {};  // limit that determines `free`: "ulimit -v: 4.00 GiB"; empty on a GPU
};

// Returns nothing if `error` is something else. On the CPU `free` is that of free_host_memory():
// when an error is caught, much of the memory held at the failure is free again.
std::optional<FailedAllocation> failed_allocation(const std::exception_ptr& error);

// Returns what this process could still allocate at its peak of memory, by the limits of the
// machine, its control group and the process.
FreeMemory free_host_memory();

// Returns the message. `operation`: "backward of block layers.3", or empty. `remedies`: one line
// each.
std::string out_of_memory_message(const FailedAllocation& failed, const std::string& operation,
                                  const std::vector<std::string>& remedies);

}  // namespace zeroth::trainer
