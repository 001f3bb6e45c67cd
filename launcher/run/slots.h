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

// Applies --num_gpus, --include and --exclude. A GPU machine's slots are its visible GPUs, a CPU
// machine has one per core. Throws UsageError on flags that contradict each other or the machine.
SlotChoice choose_slots(const LaunchOptions& options, Accelerator accelerator,
                        const Machine& machine);

}  // namespace zeroth::launcher
