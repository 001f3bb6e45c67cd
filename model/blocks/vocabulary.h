// A vocabulary over the ranks that share it: each has a run of its rows in embedding and head.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/split.h"
#include "model/tensor_ranks.h"

namespace zeroth::model {

// ceil(vocab / ranks) rows for each, and for the last what is left: nothing is padded, so that
// nothing has to be masked.
struct Vocabulary {
  explicit Vocabulary(int64_t size, TensorRanksPtr shared_by = nullptr);

  int64_t all;    // tokens
  int64_t begin;  // the first of this rank's
  int64_t own;    // so many
  int64_t most;   // the most that a rank has
  TensorRanksPtr ranks;

  // Of a parameter [own, width].
  Split split(const std::string& whole, int64_t width) const;

  // Rows of this rank's part, 0 where another rank has the token, and [n] bool: which are here. On
  // the CPU an Error where no rank has one, as on one rank.
  struct Rows {
    torch::Tensor rows, here;
  };
  Rows rows_of(const torch::Tensor& tokens) const;
};

}  // namespace zeroth::model
