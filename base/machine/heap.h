// Settings of the process's heap.
#pragma once

namespace zeroth {

// Makes the process keep freed memory for later allocations. A training step frees what it
// allocates; by default large blocks return to the kernel each time and their pages are zeroed
// again. Does not change peak memory. Has no effect if the C library is not glibc.
void retain_freed_memory();

}  // namespace zeroth
