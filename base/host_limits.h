// Host memory: what this process has taken, and what may still be taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"

namespace zeroth {

struct FreeMemory {
  int64_t bytes = 0;  // that this process and its siblings may take together before others suffer
  std::string limit;  // what rules, for a message: "MemAvailable in /proc/meminfo"
};

// What the machine has free (page cache that would make way included, swap not) or what the control
// groups around this process still allow (version 1 or 2), whichever is less. Empty where nothing
// tells. `root` is "/" but in tests, where a folder plays proc and sys.
std::optional<FreeMemory> free_memory(const std::filesystem::path& root = "/");

// Bytes of this process, by /proc/self/status; 0 where the kernel does not say.
struct ProcessMemory {
  int64_t resident = 0;      // mapped files and shared memory included
  int64_t peak = 0;          // of that, since the process started
  int64_t peak_virtual = 0;  // of its address space
};
ProcessMemory process_memory();

// What `ulimit -v` leaves of its addresses to this process at its largest so far; empty without
// such a limit.
std::optional<FreeMemory> free_address_space();

// Host memory that was asked for and not given.
class OutOfHostMemory : public Error {
 public:
  // `message` names the bytes and the system's reason.
  OutOfHostMemory(int64_t bytes, const std::string& message) : Error(message), bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
};

}  // namespace zeroth
