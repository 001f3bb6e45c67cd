// The start point of a run: the content of its output, and the checkpoint from which it resumes.
#pragma once

namespace zeroth::trainer {

struct RunPlan;

// Cleans up what a killed run left unfinished in --output. Throws an Error if another run uses the
// output, or if it may not be overwritten.
void check_output(const RunPlan& plan);

// Fills plan.previous_attempts, plan.resume_plan and the batch to keep; --resume is auto by default
// in a later restart attempt. Throws an Error if there is nothing to resume from.
void resolve_start_step(RunPlan& plan);

// Throws an Error if the run has already taken more steps than requested. A finished run can resume
// with a larger number of steps.
void require_steps_left(const RunPlan& plan);

}  // namespace zeroth::trainer
