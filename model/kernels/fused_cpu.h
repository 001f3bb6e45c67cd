// The operators of fused.h on the CPU: the loops of model/kernels/cpu over all threads, or the
// formulas if the dtype (fp64) or the layout has no loop.
#pragma once

namespace torch {
class Library;
}

namespace zeroth::model {

// Registers them with the dispatcher for the CPU.
void register_on_cpu(torch::Library& library);

}  // namespace zeroth::model
