// Texts about the configuration of a run: those that --print-config and --inspect-samples print,
// and lines of the summary.
#pragma once

#include <string>
#include <vector>

#include "configs/resolve.h"

namespace zeroth::trainer {

struct RunPlan;

// The configuration of the run, completed by a value that only its model determines: the size of
// file buffers.
struct RunConfig {
  configs::Config config;
  configs::Origins origins;
};
RunConfig run_config(const RunPlan& plan);

// Returns the resolved configuration as a ds_config.json that loads again. Values without a key
// precede it as comments, spelled as flags. The run's messages about its flags and keys follow it
// as comments: the plan's notes, `notes` and the plan's warnings. Ends with a newline.
std::string config_text(const RunPlan& plan, const std::vector<std::string>& notes = {});

// Prints how the data was interpreted, the lengths of its samples, and the first ones in file
// order, token by token; or as lines of JSON, and all else by `print_error`. Uses the training
// samples, or with --eval-only the evaluated ones.
void inspect_samples(const RunPlan& plan, bool colored,
                     const std::function<void(std::string_view)>& print,
                     const std::function<void(std::string_view)>& print_error);

// Returns which of Trainer's defaults apply if the command line is spelled for Trainer; otherwise
// empty.
std::string defaults_line(const RunPlan& plan);

}  // namespace zeroth::trainer
