// The build stamp of a program and of libzeroth_gpu.so: version, LibTorch, compiler, build type and
// a hash of the sources on which both must agree. cmake/GpuStamp.cmake regenerates it when one of
// these changes.
#pragma once

namespace zeroth::device {

// Build stamp with hidden visibility: the program and the library each have their own.
extern const char kGpuStamp[] __attribute__((visibility("hidden")));

}  // namespace zeroth::device
