// The secret that all processes of a run on several nodes share.
#pragma once

#include <optional>
#include <string>

namespace zeroth {

// Returns the secret from the values of ZEROTH_SECRET and ZEROTH_SECRET_FILE, or an empty text if
// neither is set. Throws an Error if both are set, if the secret is shorter than 16 characters, and
// like read_secret_file(). The message never contains the secret.
std::string run_secret(const std::optional<std::string>& value,
                       const std::optional<std::string>& file);

// Returns the text of a file without trailing white space. Throws an Error unless the file belongs
// to this user or root and no other user can access it.
std::string read_secret_file(const std::string& path);

}  // namespace zeroth
