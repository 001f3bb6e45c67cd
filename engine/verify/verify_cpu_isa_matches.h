// Check that ranks on the CPU use the same kernels and libraries, which give the same bits.
#pragma once

#include "base/machine/cpu.h"
#include "comm/device_mesh.h"

namespace zeroth::engine {

// CpuProfile is what selects kernels and libraries.
struct CpuProfile {
  CpuIsa level = cpu_isa();
  bool is_intel = cpu_is_intel();
  MatmulBackends products = matmul_backends();
};

// Throws an Error on all ranks that names two ranks whose ISA levels, processor makers or matmul
// backends differ, unless the ranks compute on GPUs. `own` is this rank's profile. Collective.
void verify_cpu_isa_matches(const CpuProfile& own, const comm::DeviceMesh& mesh);

}  // namespace zeroth::engine
