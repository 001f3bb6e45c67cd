// The secret that all processes of a run on several machines share, as users give it.
#pragma once

#include <optional>
#include <string>

namespace zeroth {

// Of ZEROTH_SECRET or ZEROTH_SECRET_FILE, whose values these are; empty where neither is set.
// Throws an Error, never with the secret, where both are, where it is shorter than 16 characters,
// and as read_secret_file.
std::string run_secret(const std::optional<std::string>& value,
                       const std::optional<std::string>& file);

// The text of a file without white space at its end. Throws an Error unless it is one of this user,
// or of root, that nobody else may read.
std::string read_secret_file(const std::string& path);

}  // namespace zeroth
