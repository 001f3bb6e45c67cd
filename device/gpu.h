// The interface to the GPU side, a shared library of its own that is loaded only if a GPU is used,
// so that a CPU run maps no CUDA library.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace zeroth::device {

// GpuDriver is CUDA's report on the driver. Versions are CUDA's: 12040 for 12.4, 0 if there is
// none.
struct GpuDriver {
  std::string error;  // why no GPU is visible; empty if one is
  int supported = 0;  // the highest version that the driver supports
  int needed = 0;     // the version that the library was built for
};

// A PagePinner pins (page-locks) memory, which a device requires for copies that overlap with CPU
// work.
class PagePinner {
 public:
  virtual ~PagePinner() = default;
  // Returns an empty text, or the reason why this memory stays pageable.
  virtual std::string pin(std::span<std::byte> memory) = 0;
  // Unpins exactly a range that pin() has pinned. No copy may still use it.
  virtual void unpin(std::span<std::byte> memory) noexcept = 0;
};

class Gpu : public PagePinner {
 public:
  virtual int device_count() const = 0;
  virtual GpuDriver driver() const = 0;
  // Returns 90 for compute capability 9.0.
  virtual int compute_capability(int index) const = 0;
  // Makes `index` the current device of this thread. Products of 16-bit factors that are split
  // along their sum (the weight gradients of few keys) then add the partial sums in fp32.
  void select(int index);

 private:
  virtual void select_device(int index) = 0;
};

// Returns the path of libzeroth_gpu.so: in the directory of the running program, in its sibling
// lib/, or in an absolute directory of the linked run path. Returns nothing in a CPU-only build.
// Ignores LD_LIBRARY_PATH and the working directory.
std::optional<std::filesystem::path> gpu_library();

// Sets the environment variables that LibTorch's CUDA side reads at its first use. Keeps variables
// that the user has set.
void set_gpu_variables();

// Loads libzeroth_gpu.so, after set_gpu_variables(). The first call must precede any other use of
// torch in the process. Throws an Error if something is missing (a CPU-only build, a driver), which
// it names, or if the library is of another build (kGpuStamp). The object lives until the process
// exits.
Gpu& load_gpu();

// Returns why no GPU is visible, for users: the driver's version, its shortcoming, and advice.
// `module` is the content of /proc/driver/nvidia/version; it may be empty.
std::string no_gpu_message(const GpuDriver& driver, const std::string& module);

// Returns the address of an exported function of libzeroth_gpu.so, and loads the library first if
// necessary. Throws as load_gpu() does.
void* gpu_entry(const char* name);

// Exported entries of the library: the factory of its Gpu, and the kGpuStamp that it was built
// with.
using GpuEntry = Gpu* (*)();
using GpuStamp = const char* (*)();
inline constexpr const char* kGpuEntry = "zeroth_gpu_entry";
inline constexpr const char* kGpuStampEntry = "zeroth_gpu_stamp";

// The build stamp of a program and of libzeroth_gpu.so: version, LibTorch, compiler, build type and
// a hash of the sources on which both must agree. cmake/GpuStamp.cmake regenerates it when one of
// these changes. Its visibility is hidden: the program and the library each have their own.
extern const char kGpuStamp[] __attribute__((visibility("hidden")));

}  // namespace zeroth::device
