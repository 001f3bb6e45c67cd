// Whether hosts have the same model: a digest of the files that say what it is.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

// The folder that a program's arguments name by --model or --model_name_or_path, the last one;
// empty: none. Pure.
std::string model_argument(const std::vector<std::string>& command);

// Of config.json and the indices of its weights (*.index.json), by name and content; weights
// themselves are left out, which would take minutes. Empty where `directory` is no folder, as with
// a hub's name. Throws Error where one of the files cannot be read.
std::string model_digest(const std::string& directory);

}  // namespace zeroth::launcher
