// CPU memory: how much this process uses, how much it can still allocate, and what it does with
// freed memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"

namespace zeroth {

struct FreeMemory {
  int64_t bytes = 0;  // that this process and its siblings can allocate together
  std::string limit;  // source of the limit, for a message: "MemAvailable in /proc/meminfo"
};

// Returns the memory that is available on the machine (with reclaimable page cache, without swap)
// or within the control groups (version 1 or 2) of this process, whichever is less. Returns nullopt
// if neither is known. `root` is "/" in production; in tests it is a directory with fake proc and
// sys trees.
std::optional<FreeMemory> free_memory(const std::filesystem::path& root = "/");

// ProcessMemory contains bytes of this process from /proc/self/status, 0 where the kernel reports
// none.
struct ProcessMemory {
  int64_t resident = 0;      // with mapped files and shared memory
  int64_t peak = 0;          // of `resident` since the process started
  int64_t peak_virtual = 0;  // of the address space
};
ProcessMemory process_memory();

// Returns the address space that `ulimit -v` leaves beyond the peak of this process, or nullopt if
// there is no such limit.
std::optional<FreeMemory> free_address_space();

// Makes the process keep freed memory for later allocations. A training step frees what it
// allocates; by default large blocks return to the kernel each time and their pages are zeroed
// again. Has no effect if the C library is not glibc.
void retain_freed_memory();

// Returns the freed memory of this process to the kernel, once, if the process has 256 MiB. Call it
// where one phase ends and another begins that allocates other sizes, for which the gaps that the
// first one left are of little use: without it the process holds the gaps of both. Has no effect if
// the C library is not glibc.
void release_freed_memory();

// OutOfHostMemory reports a failed allocation of CPU memory.
class OutOfHostMemory : public Error {
 public:
  // `message` names the bytes and the system's reason.
  OutOfHostMemory(int64_t bytes, const std::string& message) : Error(message), bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
};

}  // namespace zeroth
