// The operators of fused.h on the CPU, by the loops of model/kernels/cpu over all threads; the
// formulas where the dtype (fp64) or the layout has no loop.
#pragma once

namespace torch {
class Library;
}

namespace zeroth::model {

// Makes them what the dispatcher calls on the CPU.
void register_on_cpu(torch::Library& library);

}  // namespace zeroth::model
