// Finds the directory of a model that a user names, and recognizes other things found in its place,
// and a model's files by their names.
#pragma once

#include <filesystem>
#include <string>

namespace zeroth::model {

// Returns `name` itself if it exists. Otherwise, for a name as on Hugging Face's hub ("org/model"),
// returns the snapshot of its main branch in the hub's cache, found as huggingface_hub does:
// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, the home directory. Downloads
// nothing. Throws an Error with the command that downloads the model.
std::filesystem::path find_model_directory(const std::string& name);

// Throws an Error for a directory with an adapter, with git-lfs pointers in the place of files, or
// with weights in another format only, and for a file in the place of a directory. The message says
// what was found and what to run next.
void check_model_directory(const std::filesystem::path& directory);

// Returns the end of a message about a directory without a config.json: what it seems to be, and
// what to do.
std::string missing_config_hint(const std::filesystem::path& directory);

// Returns whether the file is one that a new model copies from its source: tokenizer, chat
// template, a multimodal model's processor, or generation settings.
bool is_auxiliary_file(const std::string& name);

// Returns whether the file belongs to a model: config.json, weights of any kind, adapters,
// auxiliary files, and what Trainer and run_clm.py record of its training and evaluation.
bool is_model_file(const std::string& name);

}  // namespace zeroth::model
