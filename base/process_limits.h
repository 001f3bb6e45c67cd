// What `ulimit` allows this process, in the words of its messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace zeroth {

// The system's words for an errno; where a limit is the reason, with its name: "Too many open files
// (ulimit -n)".
std::string system_reason(int error);

// The largest file that this process may write, in bytes (ulimit -f); empty where that is not
// limited.
std::optional<int64_t> file_size_limit();

// "each process may use 391 MiB of address space: ulimit -v"; empty where that is not limited.
std::string address_space_limit();

// Sees to it that this process and what it starts may have so many files open: raises the limit as
// far as the system lets it. Throws an Error that names the limit. With fewer, a file that cannot
// be opened would look like one that is not there.
void raise_open_file_limit(int needed);

}  // namespace zeroth
