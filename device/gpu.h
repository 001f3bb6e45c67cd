// The GPU side, behind one door: a shared library of its own that is loaded only when a GPU is
// used, so that a CPU run maps no CUDA library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace zeroth::device {

// What CUDA says of the driver. Versions are CUDA's: 12040 for 12.4, 0 where there is none.
struct GpuDriver {
  std::string error;  // why no GPU is visible; empty where one is
  int supported = 0;  // the highest that the driver knows
  int needed = 0;     // that the library was built for
};

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual int device_count() const = 0;
  virtual GpuDriver driver() const = 0;
  // 90 for 9.0.
  virtual int compute_capability(int index) const = 0;
  // Makes `index` the current device of this thread.
  virtual void select(int index) = 0;
  // Page-locks memory for copies from and to the GPUs. Returns an empty text, or why not.
  virtual std::string lock_pages(std::span<std::byte> memory) = 0;
  // Of exactly what lock_pages() took; no copy uses it any more.
  virtual void unlock_pages(std::span<std::byte> memory) noexcept = 0;
};

// Where libzeroth_gpu.so lies: in the folder of the running program, its sibling lib/ or an
// absolute folder of the run path that was linked into it; empty in a CPU-only build. Neither
// LD_LIBRARY_PATH nor the current folder is looked at.
std::optional<std::filesystem::path> gpu_library();

// Sets the variables of the environment that LibTorch's CUDA side reads when it is first used, but
// those that are set already: the user's values stand.
void set_gpu_variables();

// Loads libzeroth_gpu.so, after set_gpu_variables(). The first call must come before any other use
// of torch in the process. Throws an Error that says what is missing (a CPU-only build, a driver),
// or that the library is of another build (device/gpu_stamp.h). The object lives as long as the
// process.
Gpu& load_gpu();

// Why no GPU is visible, for a user: the driver's version, what it lacks, and what to do. `module`:
// what /proc/driver/nvidia/version says; may be empty.
std::string no_gpu_message(const GpuDriver& driver, const std::string& module);

// The address of an exported function of libzeroth_gpu.so, which is loaded where it is not. Throws
// as load_gpu().
void* gpu_entry(const char* name);

// The exported entries of the library: its door, and the kGpuStamp that it was built with.
using GpuEntry = Gpu* (*)();
using GpuStamp = const char* (*)();
inline constexpr const char* kGpuEntry = "zeroth_gpu_entry";
inline constexpr const char* kGpuStampEntry = "zeroth_gpu_stamp";

}  // namespace zeroth::device
