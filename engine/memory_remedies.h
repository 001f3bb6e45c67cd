// What a person can change about a run that has failed for want of memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"

namespace zeroth::engine {

struct MemoryFacts {
  int64_t world_size = 1;
  int64_t seq_len = 1;
  bool trains = true;  // false: it only evaluates
  enum class Shortage {
    kShared,  // host memory, of a run that computes in it
    kDevice,  // memory of a GPU
    kHost     // host memory, of a run on GPUs
  };
  Shortage shortage = Shortage::kShared;
  bool activations = false;  // they are counted among what is needed

  // Whether what rests there is in the host memory that is short.
  bool is_short_at(configs::OffloadDevice place) const {
    return place == configs::OffloadDevice::kCpu ||
           (place == configs::OffloadDevice::kNone && shortage == Shortage::kShared);
  }
};

// Shards parameters and keeps all of them in files, through buffers as large as the model needs.
void move_parameters_to_files(configs::Config& config);

// Another line of a message: the JSON to paste into ds_config.json for `after` in place of
// `before`, with an example of a nvme_path where there is none. Empty where no key changes.
std::string json_to_paste(const configs::Config& before, configs::Config after);

// At most three, each with its JSON below it, what costs least first. Only what this configuration
// does not do already, and what takes load off the memory that is short.
std::vector<std::string> memory_remedies(const configs::Config& config, const MemoryFacts& facts);

}  // namespace zeroth::engine
