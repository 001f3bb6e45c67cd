// Which build a program and libzeroth_gpu.so are of: version, LibTorch, compiler, build type and a
// hash of the sources on which both have to agree. Made anew when one of these changes
// (cmake/GpuStamp.cmake).
#pragma once

namespace zeroth::device {

// Not visible from outside: program and library each have their own.
extern const char kGpuStamp[] __attribute__((visibility("hidden")));

}  // namespace zeroth::device
