// A digest of the files that define a model, for checking that nodes have the same one.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

// Returns the directory that a program's arguments name by --model or --model_name_or_path, the
// last one; empty: none. Pure.
std::string model_argument(const std::vector<std::string>& command);

// Returns the digest of config.json and the indices of its weights (*.index.json), by name and
// content. Skips the weights themselves, which would take minutes. Empty if `directory` is not a
// directory, as with a hub's name. Throws Error if one of the files cannot be read.
std::string model_digest(const std::string& directory);

}  // namespace zeroth::launcher
