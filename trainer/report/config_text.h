// The text that --print-config prints.
#pragma once

#include <string>
#include <vector>

#include "trainer/run_plan.h"

namespace zeroth::trainer {

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

}  // namespace zeroth::trainer
