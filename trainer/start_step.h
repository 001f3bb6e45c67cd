// Where a run begins: what its output holds, and what it goes on from.
#pragma once

namespace zeroth::trainer {

struct RunPlan;

// Ends what a killed run had begun in --output. Throws an Error where it is another run's, or where
// it may not be overwritten.
void check_output(const RunPlan& plan);

// Fills plan.previous_attempts, plan.resume_plan and the batch that stays; in a later round than
// the first
// --resume is auto where nobody gave it. Throws an Error where there is nothing to go on from.
void resolve_start_step(RunPlan& plan);

// Throws an Error where the run has taken more steps than it shall: one that has come to its end
// may go on for longer.
void require_steps_left(const RunPlan& plan);

}  // namespace zeroth::trainer
