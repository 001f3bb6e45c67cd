// Whether pieces make up whole tensors. Pure.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/piece_file.h"

namespace zeroth::checkpoint {

// A state that a checkpoint must hold in full.
struct WholeState {
  std::string tensor, state, dtype;
  Shape shape;
};

// Every element of each tensor and state that has a piece stands in exactly one; so do all of
// `expected`, and there is nothing else where that is given. One complaint for each state that is
// otherwise, with the pieces, their files, and where the first hole is.
std::vector<std::string> coverage_complaints(const std::vector<StoredFile>& files,
                                             const std::vector<WholeState>& expected = {});

}  // namespace zeroth::checkpoint
