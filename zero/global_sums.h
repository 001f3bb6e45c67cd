// Sums over the elements of global parameters, whose parts are on several ranks and in several
// slots.
#pragma once

#include <torch/types.h>

#include "comm/device_mesh.h"
#include "zero/unit.h"

namespace zeroth::zero {

// Returns each row of `own` summed over the slot's GlobalTensor: over ranks, and over the unit's
// other slots that hold a slice of it. `own` is [slots, n] on the mesh's device, each row summed
// over the part of the slot that this rank owns; it is overwritten. Elements with replicas on
// several ranks count once. The result is the same on all ranks that hold a part. Collective if
// another rank holds a part.
torch::Tensor global_sums(const Unit& unit, torch::Tensor own, const comm::DeviceMesh& mesh);

}  // namespace zeroth::zero
