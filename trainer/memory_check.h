// A run's need of memory in words, and the refusal of one that the machine cannot hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Bytes of all ranks of one machine together, at the same time.
struct MemoryNeed {
  int64_t host = 0;  // on a CPU run the device's memory too; files that are held in memory included
  std::map<std::string, int64_t> files;  // by folder
};
MemoryNeed memory_need(const RunPlan& plan);

// Throws an Error when the machine has less host memory or disk left than training state needs
// there: with the need by kind, the limit that rules, and the fewest changes after which it fits.
void require_memory(const RunPlan& plan);

// A line for each place where something rests, by kind, and one for the machine.
std::vector<std::string> memory_lines(const RunPlan& plan);

// What a user should know when a GPU has less free than training state needs on it; `free`: bytes.
std::optional<std::string> gpu_warning(const RunPlan& plan, int64_t free);

}  // namespace zeroth::trainer
