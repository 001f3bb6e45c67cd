// The only function that launches kernels. CUDA's compiler turns the call into a kernel launch.
// With the headers of tests/emulated_gpu the same call runs the kernel on the CPU.
#pragma once

#include <cuda_runtime.h>

namespace zeroth {

// Runs kernel(args...) in `grid` blocks of `block` threads each, queued on `stream`. Reports errors
// through cudaGetLastError().
template <typename... Parameters, typename... Args>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
                   const Args&... args) {
#ifdef __CUDACC__
  kernel<<<grid, block, 0, stream>>>(args...);
#else
  emulated::launch(kernel, grid, block, stream, args...);
#endif
}

}  // namespace zeroth
