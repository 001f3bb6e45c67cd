// Limits that `ulimit` sets on this process, and their messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace zeroth {

// Returns the system's text for an errno, with the name of the limit if one is the cause: "Too many
// open files (ulimit -n)".
std::string system_reason(int error);

// Returns the maximum size of a file that this process can write, in bytes (ulimit -f), or nullopt
// if it is not limited.
std::optional<int64_t> file_size_limit();

// Returns "each process may use 391 MiB of address space: ulimit -v", or an empty text if it is not
// limited.
std::string address_space_limit();

// Maximum number of files that a process of a run has open, with a reserve: a rank without a GPU; a
// launcher or agent that starts this many ranks; a launcher with agents on this many nodes, for
// which the reserve includes unauthenticated connections.
inline constexpr int kRankOpenFiles = 32;
constexpr int launcher_open_files(int num_ranks) {
  return 24 + 4 * num_ranks;
}
constexpr int multi_node_open_files(int num_nodes) {
  return 128 + 8 * num_nodes;
}

// Raises the limit of open files of this process and its children to at least `needed`, if the
// system allows it. Throws an Error that names the limit otherwise. With a lower limit a file that
// cannot be opened would look like a missing one.
void raise_open_file_limit(int needed);

}  // namespace zeroth
