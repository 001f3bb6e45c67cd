// Who updates what rests on the host of a GPU, where a measurement is to tell.
#pragma once

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "offload/optimizer_device_choice.h"
#include "zero/memory_plan.h"
#include "zero/offload_plan.h"

namespace zeroth::zero {

// That cross the link for an element.
offload::UpdateBytes bytes_per_element(const OffloadPlan& plan);

// Measures the link's rates and the host's, on all ranks at a time, which takes a part of a second.
// The same on every rank. Collective.
offload::OptimizerDeviceChoice measure_optimizer_device(const OffloadPlan& plan,
                                                        const configs::Config& config,
                                                        const comm::DeviceMesh& mesh,
                                                        device::HostLink& link);
// What that takes at most, in each place, given back when it returns; nothing where another updater
// is planned.
TierBytes calibration_bytes(const OffloadPlan& plan);

}  // namespace zeroth::zero
