// SIGBUS told in words. A page of a mapped file or of shared memory may fail after it was mapped:
// the file is cut, its disk does not answer, no memory is left. Without a word that looks like a
// crash of ours.
#pragma once

#include <string_view>

namespace zeroth {

// From now on such a fault, in whatever thread and whosever mapping (libraries' too), writes
// "SPEAKER: error: cannot read PATH at offset N: REASON" to standard error and ends the process
// with exit code 1; of shared memory the path is the kernel's name for it ("/memfd:zeroth"). A
// fault in no mapping at all is told too and then ends it by the signal. A second call changes the
// speaker, of which the first 99 bytes count.
void install_sigbus_handler(std::string_view program);

}  // namespace zeroth
