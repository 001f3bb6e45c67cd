// The signals that ask a process to exit, and SIGBUS. A page of a mapped file or of shared memory
// can fail after it was mapped: the file is truncated, its disk fails, or memory runs out. Without
// a message the SIGBUS that follows looks like a crash of this program.
#pragma once

#include <string_view>
#include <vector>

namespace zeroth {

// Returns SIGINT, SIGTERM, and SIGHUP (sent when a terminal closes) unless it is ignored. If it is,
// as under nohup, the process must outlive its terminal.
std::vector<int> termination_signals();

bool is_ignored(int signal);

// Installs a handler for SIGBUS in any thread and any mapping, libraries' included. It writes
// "PROGRAM: error: cannot read PATH at offset N: REASON" to standard error and exits with code 1;
// for shared memory PATH is the kernel's name for it ("/memfd:zeroth"). If no file is mapped at the
// address, it reports that and lets the signal kill the process. A second call changes `program`,
// of which the first 99 bytes are used.
void install_sigbus_handler(std::string_view program);

}  // namespace zeroth
