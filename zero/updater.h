// Who updates what rests on the host of a GPU.
#pragma once

#include <string>
#include <vector>

#include "comm/mesh.h"
#include "configs/config.h"
#include "offload/step_choice.h"
#include "optim/update_rule.h"

namespace zeroth::zero {

// Whether masters are a copy beside the working weights.
bool has_master(const configs::Config& config, const optim::UpdateRule& rule);

// With the states, masters, gradients and resting places that `config` has.
offload::StepBytes bytes_per_element(const configs::Config& config);

// As offload_optimizer.step says; with auto the link and the host's rate are measured, by all ranks
// at a time, which takes a part of a second, and the reason is added to `notes`. The same on every
// rank. Collective with auto.
bool updates_on_device(const configs::Config& config, const comm::Mesh& mesh,
                       device::HostLink& link, std::vector<std::string>& notes);

}  // namespace zeroth::zero
