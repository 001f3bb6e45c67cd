// The measurement that chooses the optimizer device of a GPU's offloaded values.
#pragma once

#include "comm/device_mesh.h"
#include "configs/config.h"
#include "offload/optimizer_device_choice.h"
#include "zero/memory_plan.h"
#include "zero/offload_plan.h"

namespace zeroth::zero {

// Returns the bytes that cross the link for an element.
offload::UpdateBytes bytes_per_element(const OffloadPlan& plan);

// Measures the rates of the link and of the CPU, on all ranks at the same time, which takes a
// fraction of a second. Returns the same choice on every rank. Collective.
offload::OptimizerDeviceChoice measure_optimizer_device(const OffloadPlan& plan,
                                                        const configs::Config& config,
                                                        const comm::DeviceMesh& mesh,
                                                        device::HostLink& link);
// Returns the maximum memory of that measurement in each tier, freed when it returns; zero if the
// plan names an optimizer device.
TierBytes calibration_bytes(const OffloadPlan& plan);

}  // namespace zeroth::zero
