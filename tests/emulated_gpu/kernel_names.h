// The names of kernels, by the symbols of the program or library that has them: a launch gives an
// address only.
#pragma once

#include <string>

namespace zeroth::emulated {

// As "forward_kernel<float, 32, 1>".
std::string name_of_kernel(const void* kernel);
void count_launch(const void* kernel);

}  // namespace zeroth::emulated
