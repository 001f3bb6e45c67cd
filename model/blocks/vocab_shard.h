// A vocabulary over the ranks that share it: each has a run of its rows in embedding and head.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/split.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// ceil(vocab / ranks) rows for each, and for the last what is left: nothing is padded, so that
// nothing has to be masked.
struct VocabShard {
  explicit VocabShard(int64_t size, TensorParallelPtr tensor_parallel = nullptr);

  int64_t full_size;       // tokens
  int64_t begin;           // the first of this rank's
  int64_t local_size;      // so many
  int64_t max_local_size;  // the most that a rank has
  TensorParallelPtr tp;

  // Of a parameter [own, width].
  Split split(const std::string& full_name, int64_t width) const;

  // Rows of this rank's part, 0 where another rank has the token, and [n] bool: which are here. On
  // the CPU an Error where no rank has one, as on one rank.
  struct LocalRows {
    torch::Tensor rows, is_local;
  };
  LocalRows local_rows(const torch::Tensor& tokens) const;
};

}  // namespace zeroth::model
