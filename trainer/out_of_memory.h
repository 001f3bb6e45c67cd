// A failed allocation as a message that a user can act on.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/host_limits.h"

namespace zeroth::trainer {

// What is known of an allocation that failed; sizes in bytes.
struct FailedAllocation {
  bool on_gpu = false;
  std::optional<int64_t> requested = {};
  std::optional<int64_t> free = {};
  std::string limit = {};  // what rules `free`: "ulimit -v: 4.00 GiB"; empty on a GPU
};

// Unset when `error` is something else. On the CPU `free` is that of free_host_memory(): by the
// time that an error is caught, much of what was held then is free again.
std::optional<FailedAllocation> failed_allocation(const std::exception_ptr& error);

// What this process could still allocate when it held the most memory: by the machine, its control
// group and its own limits.
FreeMemory free_host_memory();

// `operation`: "backward of block layers.3", or empty. `remedies`: one line each.
std::string out_of_memory_message(const FailedAllocation& failed, const std::string& operation,
                                  const std::vector<std::string>& remedies);

}  // namespace zeroth::trainer
