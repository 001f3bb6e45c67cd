// MASTER_ADDR: where rank 0 of a program listens that meets there.
#pragma once

#include <string>

namespace zeroth::launcher {

// Throws an Error unless `address`, a number or a name, belongs to this machine: with any other,
// ranks would wait in silence for a store that never comes.
void check_master_addr(const std::string& address);

}  // namespace zeroth::launcher
