// The memory of a run: an estimate of all but its activations, and a measurement of those.
#pragma once

#include <string>

#include "engine/memory/memory_check.h"
#include "engine/memory/memory_estimate.h"

namespace zeroth::trainer {

struct ResolvedRun;
struct RunPlan;

// Returns the value for ResolvedRun::estimate. Throws an Error as engine::estimate_memory.
engine::MemoryEstimate estimate_memory(const ResolvedRun& run);

// Returns the memory that the run requires, without activations, on a node with `local_ranks` of
// its ranks. The result keeps a reference to the plan. Throws an Error as engine::run_memory.
engine::RunMemory run_memory(const RunPlan& plan, int local_ranks);

// Runs one layer of the plan's model, and a part of its embedding and head, on one real row (more
// rows for a small model), and derives the memory of all activations and the times of the blocks.
// Occupies the memory of that row and of the layer's gradient while it runs, one part in (rows
// x layers) of the first step's time; at most 2e9 operations for small models.
engine::MicroBatchSize measure_activations(const RunPlan& plan);

// Returns the summary's line about the pipeline of the run (engine::describe_pipeline).
std::string describe_pipeline(const RunPlan& plan, const engine::RunMemory& memory);

}  // namespace zeroth::trainer
