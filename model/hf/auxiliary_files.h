// Auxiliary files are copied unchanged from a model's source directory to a new model: tokenizer,
// chat template, generation settings.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace zeroth::model {

// Copies all auxiliary files (is_auxiliary_file) of the directory `source` to the directory
// `output`. A symbolic link counts only if it leads to a file in `source`, or in the blobs of the
// same entry if `source` is one of Hugging Face's cache (models--X/snapshots/HASH): a model's
// directory comes from another author, and its links must not publish other files of this node.
// Throws an Error that names file, reason and free bytes.
void copy_auxiliary_files(const std::filesystem::path& source, const std::filesystem::path& output);

// Returns the auxiliary files that copy_auxiliary_files() leaves out, one line each with the
// reason.
std::vector<std::string> skipped_auxiliary_files(const std::filesystem::path& source);

}  // namespace zeroth::model
