// Reader of the index of Megatron's token files (indexed_dataset.py): NAME.idx beside NAME.bin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/samples/dataset.h"

namespace zeroth::data {

// Returns the width of the ids of `tokens`, a .bin file of `bytes` bytes, from the index beside it;
// nullopt if there is none. Throws an Error that names the index if it belongs to another file, or
// if the type of the ids is not supported.
std::optional<TokenType> megatron_token_type(const std::filesystem::path& tokens, int64_t bytes);

}  // namespace zeroth::data
