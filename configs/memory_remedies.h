// What a run that lacks memory can change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"

namespace zeroth::configs {

struct MemoryFacts {
  int64_t world_size = 1;
  int64_t seq_len = 1;
  bool trains = true;  // false: it only evaluates
  enum class Lacks {
    kShared,  // host memory, of a run that computes in it
    kDevice,  // memory of a GPU
    kHost     // host memory, of a run on GPUs
  };
  Lacks lacks = Lacks::kShared;
  bool activations = false;  // they are counted among what is needed
};

// At most three, one line each, what costs least first. Only what this configuration does not do
// already, and what takes load off the memory that is short.
std::vector<std::string> memory_remedies(const Config& config, const MemoryFacts& facts);

}  // namespace zeroth::configs
