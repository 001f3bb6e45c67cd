// Whether pieces make up whole tensors. Pure.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/chunk_file.h"

namespace zeroth::checkpoint {

// A state that a checkpoint must hold in full.
struct ExpectedState {
  std::string tensor, state, dtype;
  Shape shape;
};

// Every element of each tensor and state that has a piece stands in exactly one; so do all of
// `expected`, and there is nothing else where that is given. One complaint for each state that is
// otherwise, with the pieces, their files, and where the first hole is.
std::vector<std::string> coverage_errors(const std::vector<StoredFile>& files,
                                         const std::vector<ExpectedState>& expected = {});

}  // namespace zeroth::checkpoint
