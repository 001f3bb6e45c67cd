// Reads a whole state of a checkpoint.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace zeroth::checkpoint {

inline std::vector<std::byte> read_whole(CheckpointReader& reader, const std::string& tensor,
                                         const std::string& state) {
  const StoredState* const found = reader.find(tensor, state);
  REQUIRE(found != nullptr);
  const TensorChunk whole = TensorChunk::full(tensor, state, found->dtype, found->shape);
  std::vector<std::byte> bytes(static_cast<size_t>(whole.bytes()));
  reader.read(tensor, state, whole.slice, whole.range, bytes);
  return bytes;
}

}  // namespace zeroth::checkpoint
