// What --print-config prints.
#pragma once

#include <string>
#include <vector>

#include "trainer/run_plan.h"

namespace zeroth::trainer {

// The configuration of the run, with what only its model says: the size of file buffers.
struct RunConfig {
  configs::Config config;
  configs::Origins origins;
};
RunConfig run_config(const RunPlan& plan);

// The resolved configuration as a ds_config.json that loads again. What has no key there stands
// before it as comments, spelled as flags, and behind it, as comments too, what the run would say
// of its flags and keys: the plan's notes, `notes` and the plan's warnings. Ends with a line end.
std::string config_text(const RunPlan& plan, const std::vector<std::string>& notes = {});

}  // namespace zeroth::trainer
