// The start point of a run: the content of its output, and the checkpoint from which it resumes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/restart_attempt.h"
#include "configs/diagnostic.h"
#include "trainer/attempt_log.h"
#include "trainer/flags/flags.h"
#include "trainer/resume_plan.h"

namespace zeroth::trainer {

struct RunPlan;

// The flags and the restart attempt, completed by what the output and its checkpoints determine.
struct StartPoint {
  Flags flags;             // with the batch to keep; a later restart attempt resumes
  RestartAttempt attempt;  // `resumes` also if only the record reveals earlier attempts
  std::optional<AttemptRecord> previous_attempts = {};  // record that earlier attempts have left
  std::optional<ResumePlan> resume_plan = {};           // checkpoint from which it resumes
  configs::Diagnostics notes = {};
};

// Finds where the run starts; --resume is auto by default in a later restart attempt. Throws an
// Error if there is nothing to resume from.
StartPoint resolve_start_point(Flags flags, RestartAttempt attempt);

// Cleans up what a killed run left unfinished in --output. Throws an Error if another run uses the
// output, or if it may not be overwritten.
void check_output(const StartPoint& start);

// Throws an Error if the run has already taken more steps than `total_steps`, which it is to have
// at its end. A finished run can resume with a larger number of steps.
void require_steps_left(const StartPoint& start, int64_t total_steps);

// Returns the message for a run that resumes from the checkpoint of its last step and has nothing
// left to do: its evaluation is known, and its model and results are in --output. Returns an empty
// text if something is left to do.
std::string finished_message(const RunPlan& plan);

// Returns whether the name is "step-N", or as in Hugging Face's Trainer "checkpoint-N": earlier
// versions saved such directories in --output during a run.
bool is_step_directory(const std::string& name);

}  // namespace zeroth::trainer
