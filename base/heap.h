// The process's heap.
#pragma once

namespace zeroth {

// From now on freed memory stays with the process for the next allocation. A step frees what it
// allocates; by default large blocks go back to the kernel each time and their pages are zeroed
// again. Peak memory stays what it is. Without effect where the C library is not glibc.
void retain_freed_memory();

}  // namespace zeroth
