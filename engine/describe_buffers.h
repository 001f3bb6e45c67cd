// What a rank has of its blocks' buffers where ranks share every layer.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/block.h"

namespace zeroth::engine {

// A list of {"name", "shape", "boxes"} as verify_sharding_matches() has of parameters: boxes of
// whole buffers by Block::splits(), any other whole and in as many copies as `ranks` share layers.
// Such a buffer has a "crc32c" of its values, which may not differ, too. All blocks have splits().
nlohmann::json describe_buffers(const model::Blocks& blocks, int ranks);

}  // namespace zeroth::engine
