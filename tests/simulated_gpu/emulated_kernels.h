// The CUDA kernels of the product, emulated, in queued work.
#pragma once

namespace zeroth::simulated {

// Where ZEROTH_SIMULATED_KERNELS=emulated asks for it.
void use_emulated_kernels();

}  // namespace zeroth::simulated
