// A Split defines the part of a full parameter that a tensor-parallel rank holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zeroth::model {

// A `Split` places a rank's tensor as a slice of a full parameter. The gradient from backward is
// the rank's partial sum over all ranks that hold the same slice.
struct Split {
  std::string full_name;       // full parameter's name in the block: "attention.qkv.weight"
  std::vector<int64_t> shape;  // of the full parameter
  std::vector<int64_t> begin;  // offset of the slice in each dimension; its sizes are the tensor's
  int num_replicas = 1;        // so many neighboring ranks of dim tp hold the same slice
  // Elements of the largest slice that any of these ranks holds; 0 if all are as large as this one.
  // Buffers are laid out by it, so that all ranks gather equal sizes at the same time.
  int64_t max_numel = 0;
};

// Splits are keyed by the name of a parameter or buffer in its block; those without an entry are
// full on every rank.
using Splits = std::map<std::string, Split>;

}  // namespace zeroth::model
