// Sums over the elements of whole parameters, which ranks and slots hold in parts.
#pragma once

#include <torch/types.h>

#include "comm/device_mesh.h"
#include "zero/unit.h"

namespace zeroth::zero {

// `own`: [slots, n] on the mesh's device, each row summed over what this rank owns of the slot;
// written to. Returns each row summed over the slot's GlobalTensor: over ranks, and over the unit's
// other slots that hold a box of it. What several ranks hold counts once. The same on all ranks
// that hold a part. Collective where another rank holds one.
torch::Tensor global_sums(const Unit& unit, torch::Tensor own, const comm::DeviceMesh& mesh);

}  // namespace zeroth::zero
