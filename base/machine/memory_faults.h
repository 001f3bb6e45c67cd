// Messages for SIGBUS. A page of a mapped file or of shared memory can fail after it was mapped:
// the file is truncated, its disk fails, or memory runs out. Without a message that looks like a
// crash of this program.
#pragma once

#include <string_view>

namespace zeroth {

// Installs a handler for SIGBUS in any thread and any mapping, libraries' included. It writes
// "PROGRAM: error: cannot read PATH at offset N: REASON" to standard error and exits with code 1;
// for shared memory PATH is the kernel's name for it ("/memfd:zeroth"). If no file is mapped at the
// address, it reports that and lets the signal kill the process. A second call changes `program`,
// of which the first 99 bytes are used.
void install_sigbus_handler(std::string_view program);

}  // namespace zeroth
