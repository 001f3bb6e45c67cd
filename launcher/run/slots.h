// Which slots of this machine are used, and by how many ranks. Pure.
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

// Throws UsageError where --include, --exclude and --num_gpus contradict each other.
void check_filters_agree(const LaunchOptions& options);

// Applies --num_gpus, --include and --exclude. A GPU machine's slots are its visible GPUs, a CPU
// machine has one per core. Throws UsageError on flags that contradict each other or the machine.
SlotChoice choose_slots(const LaunchOptions& options, Accelerator accelerator,
                        const Machine& machine);

// The slots that a hostfile gives this machine: on CUDA the numbers of visible GPUs. Throws
// UsageError on one that is not there, unless `share` lets ranks take turns on those that are.
SlotChoice hostfile_slots(const std::vector<int>& slots, Accelerator accelerator,
                          const Machine& machine, bool share_gpus);

}  // namespace zeroth::launcher
