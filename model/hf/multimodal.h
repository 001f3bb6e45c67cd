// The tensors of a multimodal model's files that are not its language model's: vision tower and
// projector. They are not trained, and a saved model has copies of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/spec.h"

namespace zeroth::model {

// Returns whether the files of the spec's model hold this tensor beside the language model.
bool is_other_tensor(const ModelSpec& spec, const std::string& stored);

// Reads from the names in the directory's files what `spec`, that of a multimodal model, says about
// them. If they hold a head and an embedding of different values, these are not tied, whatever
// config.json says, as in transformers.
void find_other_tensors(const std::filesystem::path& directory, ModelSpec& spec);

// Returns the bytes of the tensors that a saved model has copies of.
int64_t copied_bytes(const ModelSpec& spec);

// Calls write() for the bytes of these tensors of the directory's files, in order, block by block.
// Throws an Error if a tensor is not there any more, or is another one.
void copy_tensors(const std::filesystem::path& directory, const std::vector<CopiedTensor>& tensors,
                  const std::function<void(std::span<const std::byte>)>& write);

}  // namespace zeroth::model
