// Ranks on the CPU compute alike: by the same kernels and libraries, which give the same bits.
#pragma once

#include "base/cpu.h"
#include "comm/mesh.h"

namespace zeroth::engine {

// Throws an Error on all ranks that names two whose levels differ, unless the ranks compute on
// GPUs. `own`: this rank's. Collective.
void require_same_level(CpuLevel own, const comm::Mesh& mesh);

}  // namespace zeroth::engine
