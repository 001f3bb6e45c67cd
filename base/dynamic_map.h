// The 256 values of the dynamic data type of 8 bits ("8-Bit Approximations for Parallelism in Deep
// Learning", arXiv 1511.04561), with which bitsandbytes stores numbers between -1 and 1.
#pragma once

#include <array>

namespace zeroth {

// Returns the value of each code, ascending, with the bits of bitsandbytes' create_dynamic_map().
// Signed: from about -0.993 to 1, and code 127 is 0. Unsigned: from 0, the value of code 0, to 1.
std::array<float, 256> dynamic_map(bool is_signed);

}  // namespace zeroth
