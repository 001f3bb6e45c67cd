// The message for a failed allocation, on which a user can act.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/machine/host_limits.h"

namespace zeroth::trainer {

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
