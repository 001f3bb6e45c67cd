// Chooses the slots of this machine and the number of ranks on them. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/flags/cli.h"
#include "launcher/machine/machine.h"

namespace zeroth::launcher {

struct SlotChoice {
  std::vector<std::string> slots;  // in the machine's order; on CUDA these are device ids
  int num_ranks = 0;
  bool shared = false;  // more ranks than GPUs, as --share-gpus allows
};

// Throws UsageError if --include, --exclude and --num_gpus contradict each other.
void check_filters_agree(const LaunchOptions& options);

// Applies --num_gpus, --include and --exclude. A GPU machine's slots are its visible GPUs; a CPU
// machine has one per core. Throws UsageError on flags that contradict each other or the machine.
SlotChoice choose_slots(const LaunchOptions& options, Accelerator accelerator,
                        const Machine& machine);

// Returns the slots with these numbers, as a hostfile assigns them to this machine: on CUDA they
// are indices of visible GPUs. Throws UsageError on one that does not exist, unless `share_gpus`
// lets ranks share the existing ones.
SlotChoice hostfile_slots(const std::vector<int>& slots, Accelerator accelerator,
                          const Machine& machine, bool share_gpus);

}  // namespace zeroth::launcher
