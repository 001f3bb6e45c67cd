// What a new model takes over from its source as it is: tokenizer, chat template, generation
// settings.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace zeroth::model {

// Copies all companions (is_auxiliary_file) of the folder `source` to the folder `output`. One that
// is a link counts only if it leads to a file in `source`, or in the blobs of the same entry where
// `source` is one of Hugging Face's cache (models--X/snapshots/HASH): a model's folder is somebody
// else's work, and what it points to on this machine is not for others to read. Throws an Error
// that names file, reason and free bytes.
void copy_auxiliary_files(const std::filesystem::path& source, const std::filesystem::path& output);

// Companions that copy_auxiliary_files() leaves out, one line each with the reason.
std::vector<std::string> skipped_auxiliary_files(const std::filesystem::path& source);

}  // namespace zeroth::model
