// How many steps a run has, and where its epochs end in the sample order.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/config.h"
#include "trainer/resume_plan.h"
#include "trainer/samples.h"

namespace zeroth::trainer {

struct RunPlan;

// RunPlan::offset of a run that resumes from there: the samples that were consumed, in epochs as
// they were cut then, on the positions of now.
int64_t resume_offset(const ResumePlan& from, const Samples& samples, int64_t global_batch);

// Samples that `epochs` passes take: to the nearest one, at least one. Throws an Error beyond
// kMaxSteps.
int64_t samples_in_epochs(double epochs, int64_t samples);

// The run's steps by its flags, and into the plan how its samples lie in epochs. `drops`: what
// fills no batch is left out. Unset when neither flags nor data say it (--print-config without
// --data).
std::optional<int64_t> count_steps(RunPlan& plan, const configs::BatchConfig& batch, bool drops);

}  // namespace zeroth::trainer
