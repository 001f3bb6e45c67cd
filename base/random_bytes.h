// Random numbers that nobody can guess.
#pragma once

#include <cstddef>
#include <string>

namespace zeroth {

// Of the kernel. Throws an Error where it has none.
std::string random_bytes(size_t count);

}  // namespace zeroth
