// Who updates what rests on the host of a GPU, where a measurement is to tell.
#pragma once

#include "comm/mesh.h"
#include "configs/config.h"
#include "offload/step_choice.h"
#include "zero/memory_plan.h"
#include "zero/rest_plan.h"

namespace zeroth::zero {

// That cross the link for an element.
offload::StepBytes bytes_per_element(const RestPlan& rest);

// Measures the link's rates and the host's, on all ranks at a time, which takes a part of a second.
// The same on every rank. Collective.
offload::StepChoice measure_updater(const RestPlan& rest, const configs::Config& config,
                                    const comm::Mesh& mesh, device::HostLink& link);
// What that takes at most, in each place, given back when it returns; nothing where another updater
// is planned.
PlaceBytes measuring_bytes(const RestPlan& rest);

}  // namespace zeroth::zero
