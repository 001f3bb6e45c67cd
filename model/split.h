// Where several ranks share every layer: which part of a parameter of the whole model a rank holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zeroth::model {

// A rank's tensor is a box of a whole parameter. What backward gives it is the rank's addend of a
// sum over all ranks that hold the same box.
struct Split {
  std::string full_name;       // the whole one's name in the block: "attention.qkv.weight"
  std::vector<int64_t> shape;  // of the whole one
  std::vector<int64_t> begin;  // of the box in each dimension; its extents are the tensor's
  int num_replicas = 1;        // so many neighbouring ranks of axis tensor hold the same box
  // Elements of the largest box that any of these ranks holds; 0: all are as large as this one.
  // Buffers are laid out by it, so that all ranks gather the same at the same time.
  int64_t max_numel = 0;
};

// By a parameter's or buffer's own name in its block; those not among them are whole on every rank.
using Splits = std::map<std::string, Split>;

}  // namespace zeroth::model
