#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files/run_path.h"
#include "device/gpu.h"

namespace zeroth::device {
namespace {

namespace fs = std::filesystem;

struct VariableDefault {
  const char *name, *value;
};
constexpr VariableDefault kDefaults[] = {
    // After a GPU fault every CUDA call fails. The rank's own thread reports that with its rank and
    // collective; c10d's watchdog would end the process by SIGABRT before.
    {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
    // c10d would write traces into the system's temporary directory.
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
    // c10d would kill a process that is suspended, or locks pages, for eight minutes.
    {"TORCH_NCCL_ENABLE_MONITORING", "0"},
};

// Throws if the library is of another build. Must precede its first call: functions are found by
// their index in a table, not by name.
void require_same_build(void* library, const fs::path& path) {
  const auto stamp = reinterpret_cast<GpuStamp>(dlsym(library, kGpuStampEntry));
  const std::string found = stamp == nullptr ? "missing" : fmt::format("\"{}\"", stamp());
  if (stamp != nullptr && std::string_view(stamp()) == kGpuStamp) return;
  throw Error(
      "{} is from another build than this program: its stamp is {}, the program's \"{}\"; build "
      "both from the same sources (cmake --build BUILD_FOLDER), install both, or run with "
      "DS_ACCELERATOR=cpu",
      path.string(), found, kGpuStamp);
}

}  // namespace

void Gpu::select(int index) {
  select_device(index);
  at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  at::globalContext().setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
}

std::optional<fs::path> gpu_library() {
  return find_program_library("libzeroth_gpu.so");
}

void set_gpu_variables() {
  for (const VariableDefault& variable : kDefaults) ::setenv(variable.name, variable.value, 0);
  // Otherwise batches of varying lengths leave holes that no later batch fits into.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr)
    ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 0);
}

void* gpu_entry(const char* name) {
  set_gpu_variables();
  const auto path = gpu_library();
  if (!path) {
    throw Error(
        "no GPU support in this build: libzeroth_gpu.so is not in {}, its sibling lib or "
        "the run path (configure with -DZEROTH_CUDA=ON and a CUDA toolkit, or run with "
        "DS_ACCELERATOR=cpu)",
        program_directory().string());
  }
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Error("cannot load the GPU library: {}", dlerror());
  require_same_build(library, *path);
  void* const entry = dlsym(library, name);
  ZEROTH_CHECK(entry != nullptr, "{} is missing {}", path->string(), name);
  return entry;
}

std::string no_gpu_message(const GpuDriver& driver, const std::string& module) {
  const std::string error = driver.error.empty() ? "CUDA finds none" : driver.error;
  constexpr const char* kOtherwise = "compute on the CPU with DS_ACCELERATOR=cpu";
  if (driver.supported == 0) {
    return fmt::format(
        "no GPU is visible: there is no NVIDIA driver ({}); install one, start a container with "
        "its GPUs (--gpus all), or {}",
        error, kOtherwise);
  }
  const auto version_string = [](int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  };
  std::istringstream words(module);
  std::string version, word;
  while (version.empty() && words >> word) {  // "... Kernel Module  550.54.15  Tue ..."
    if (word.find_first_not_of("0123456789.") == std::string::npos) version = " " + word;
  }
  const std::string found =
      fmt::format("no GPU is visible, though the NVIDIA driver{} is installed: {}", version, error);
  if (driver.supported >= driver.needed)
    return fmt::format("{}; check nvidia-smi, or {}", found, kOtherwise);
  return fmt::format(
      "{}. The driver supports CUDA {}, this build needs {}: update the driver, install NVIDIA's "
      "forward-compatibility package cuda-compat-{}-{} (for data-center GPUs), build with a "
      "LibTorch for CUDA {} (see docs/errors.md), or {}",
      found, version_string(driver.supported), version_string(driver.needed), driver.needed / 1000,
      driver.needed % 1000 / 10, driver.supported / 1000, kOtherwise);
}

Gpu& load_gpu() {
  return *reinterpret_cast<GpuEntry>(gpu_entry(kGpuEntry))();
}

}  // namespace zeroth::device
