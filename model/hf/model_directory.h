// From what a user calls a model to the folder that has it, and what else may lie in its place.
#pragma once

#include <filesystem>
#include <string>

namespace zeroth::model {

// `name` itself where it is there. Else, for a name as on Hugging Face's hub ("org/model"), the
// snapshot of its main branch in the hub's cache, found as huggingface_hub does: HF_HUB_CACHE,
// HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, the home folder. Nothing is fetched. Throws an
// Error with the command that fetches it.
std::filesystem::path find_model_directory(const std::string& name);

// Throws an Error for a folder with an adapter, with git-lfs pointers in the place of files, or
// with weights in another format only, and for a file in the place of a folder: what it is, and
// what to run next.
void check_model_directory(const std::filesystem::path& directory);

// What a folder without a config.json seems to be, and what to do, as the end of a message.
std::string missing_config_hint(const std::filesystem::path& directory);

}  // namespace zeroth::model
