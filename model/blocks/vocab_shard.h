// A VocabShard splits a vocabulary over the tensor-parallel ranks: each has a range of its rows in
// embedding and head.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "model/split.h"
#include "model/tensor_parallel.h"

namespace zeroth::model {

// VocabShard assigns ceil(vocab / ranks) rows to each rank, and the remaining ones to the last:
// nothing is padded, so nothing has to be masked.
struct VocabShard {
  explicit VocabShard(int64_t size, TensorParallelPtr tensor_parallel = nullptr);

  int64_t full_size;       // tokens
  int64_t begin;           // first token of this rank's range
  int64_t local_size;      // tokens of this rank's range
  int64_t max_local_size;  // max over all ranks
  TensorParallelPtr tp;

  // Returns the split of a parameter [local_size, width].
  Split split(const std::string& full_name, int64_t width) const;

  // LocalRows maps tokens to rows of this rank's part: 0 where another rank has the token, and [n]
  // bool that marks the local ones. On the CPU, local_rows() throws an Error for a token that no
  // rank has, with a single rank too.
  struct LocalRows {
    torch::Tensor rows, is_local;
  };
  LocalRows local_rows(const torch::Tensor& tokens) const;
};

}  // namespace zeroth::model
