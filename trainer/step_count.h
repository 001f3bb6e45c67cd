// The number of steps of a run, and the ends of its epochs in the sample order.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/config.h"
#include "trainer/resume_plan.h"
#include "trainer/samples.h"

namespace zeroth::trainer {

struct RunPlan;

// Returns RunPlan::offset of a run that resumes from `from`: places the consumed samples, in epochs
// as they were laid out then, on current positions.
int64_t resume_offset(const ResumePlan& from, const Samples& samples, int64_t global_batch);

// Returns the samples in `epochs` passes, rounded to the nearest number, at least one. Throws an
// Error above kMaxSteps.
int64_t samples_in_epochs(double epochs, int64_t samples);

// Returns the run's steps by its flags, and stores the layout of its epochs in the plan. `drops`:
// whether an incomplete batch is left out. Returns nothing if neither flags nor data determine it
// (--print-config without --data).
std::optional<int64_t> count_steps(RunPlan& plan, const configs::BatchConfig& batch, bool drops);

}  // namespace zeroth::trainer
