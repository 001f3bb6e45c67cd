// Many complaints in one message.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace zeroth {

// Of all that is wrong with one input, so much is shown: a file or a command line of some other
// kind has thousands of mistakes.
inline constexpr size_t kMostComplaints = 20;

// The first ones, printable, each but the first on an indented line of its own, and "and 3 more".
std::string listed(const std::vector<std::string>& complaints, size_t most = kMostComplaints);

}  // namespace zeroth
