// The one function through which every kernel is launched. CUDA's compiler makes a launch of it;
// where its headers are those of tests/emulated_gpu, the same call runs the kernel on the CPU.
#pragma once

#include <cuda_runtime.h>

namespace zeroth {

// Runs kernel(args...) in `grid` blocks of `block` threads each, queued on `stream`. Errors are
// those of cudaGetLastError().
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
