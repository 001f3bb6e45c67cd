// A file with a secret in it.
#pragma once

#include <string>

namespace zeroth::comm {

// The text of a file without white space at its end. Throws an Error unless it is one of this user,
// or of root, that nobody else may read.
std::string read_secret_file(const std::string& path);

}  // namespace zeroth::comm
