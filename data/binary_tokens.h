// Files of token ids, without text and without a header.
#pragma once

#include "data/token_windows.h"

namespace zeroth::data {

// .bin: the ids themselves, mapped; read through once, a part at a time. Their width is that of
// Megatron's index beside the file, or of DatasetOptions::token_type, or follows from the
// vocabulary. A file that looks as if it had ids of another width or byte order, a header or text
// is an Error, unless its index or token_type says how to read it; so is an id outside the
// vocabulary, with file, position and value.
TokenStream map_binary_tokens(const DatasetOptions& options);

}  // namespace zeroth::data
