// Reader of files of token ids, without text and without a header.
#pragma once

#include "data/samples/token_windows.h"

namespace zeroth::data {

// Maps a .bin file of token ids; reads it once, chunk by chunk, to check it. The width of the ids
// comes from Megatron's index beside the file, or from DatasetOptions::token_type, or follows from
// the vocabulary. Throws an Error for a file that appears to have ids of another width or byte
// order, a header or text, unless its index or token_type states the format; and for an id outside
// the vocabulary, with file, position and value.
TokenStream map_binary_tokens(const DatasetOptions& options);

}  // namespace zeroth::data
