// Cryptographically secure random bytes.
#pragma once

#include <cstddef>
#include <string>

namespace zeroth {

// Returns `count` bytes from the kernel. Throws an Error if the kernel provides none.
std::string random_bytes(size_t count);

}  // namespace zeroth
