// Description of a rank's block buffers, for ranks that share every layer.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/block.h"

namespace zeroth::engine {

// Returns a list of {"name", "shape", "boxes"}, in the format of the parameters of
// verify_sharding_matches(). Buffers in Block::splits() are listed as slices of the global buffer;
// any other is full, with `ranks` replicas, and has a "crc32c" of its values, which must match on
// all ranks. All blocks must have splits().
nlohmann::json describe_buffers(const model::Blocks& blocks, int ranks);

}  // namespace zeroth::engine
