// The port of rank 0's store.
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace zeroth::comm {

// A socket that listens on `port` of `address` (a number or a name of this machine) and of nothing
// else. Throws an Error that names both.
FileDescriptor listen_at(const std::string& address, int port);

}  // namespace zeroth::comm
