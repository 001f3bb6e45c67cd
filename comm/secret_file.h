// A file with a secret in it.
#pragma once

#include <string>

namespace zeroth::comm {

// Its text without white space at the end. Throws an Error unless it is a file of this user, or of
// root, that nobody else may read.
std::string read_secret_file(const std::string& path);

}  // namespace zeroth::comm
