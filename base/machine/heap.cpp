#include "base/machine/heap.h"

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace zeroth {

void retain_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);         // allocate every block from the heap
  mallopt(M_TRIM_THRESHOLD, -1);  // never shrink the heap
  mallopt(M_TOP_PAD, 64 << 20);   // grow it in large steps
#endif
}

}  // namespace zeroth
