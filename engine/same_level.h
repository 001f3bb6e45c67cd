// Ranks on the CPU compute alike: by the same kernels and libraries, which give the same bits.
#pragma once

#include "base/cpu.h"
#include "comm/mesh.h"

namespace zeroth::engine {

// What decides over kernels and libraries.
struct Processor {
  CpuLevel level = cpu_level();
  bool is_intel = cpu_is_intel();
  CpuProducts products = cpu_products();
};

// Throws an Error on all ranks that names two whose levels, processors' makers or products differ,
// unless the ranks compute on GPUs. `own`: this rank's. Collective.
void require_same_level(const Processor& own, const comm::Mesh& mesh);

}  // namespace zeroth::engine
