// The index of Megatron's token files (indexed_dataset.py): NAME.idx beside NAME.bin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/dataset.h"

namespace zeroth::data {

// How wide the ids of `tokens`, a .bin file of so many bytes, are by the index beside it; nothing
// where there is none. Throws an Error that names the index for one that belongs to another file,
// and for ids of a kind that is not read.
std::optional<TokenType> megatron_token_type(const std::filesystem::path& tokens, int64_t bytes);

}  // namespace zeroth::data
