// Checks that chunks cover whole tensors. Pure.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/chunk_file.h"

namespace zeroth::checkpoint {

// An ExpectedState is a state that a checkpoint must contain in full.
struct ExpectedState {
  std::string tensor, state, dtype;
  Shape shape;
};

// Checks that exactly one chunk covers each element of every stored state and of every state in
// `expected`, and that no other state exists if `expected` is given. Returns one error for each
// state that violates this, with its chunks, their files, and the first gap.
std::vector<std::string> coverage_errors(const std::vector<StoredFile>& files,
                                         const std::vector<ExpectedState>& expected = {});

}  // namespace zeroth::checkpoint
