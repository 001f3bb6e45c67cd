#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"
#include "comm/gpu.h"

namespace zeroth::comm {
namespace {

namespace fs = std::filesystem;

fs::path program_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

}  // namespace

std::optional<fs::path> gpu_library() {
  const fs::path bin = program_folder();
  for (const fs::path& folder : {bin, bin / "../lib"}) {
    if (fs::exists(folder / "libzeroth_gpu.so")) return folder / "libzeroth_gpu.so";
  }
  return std::nullopt;
}

Gpu& load_gpu() {
  const auto path = gpu_library();
  if (!path) {
    throw Error(
        "no GPU support in this build: libzeroth_gpu.so lies neither in {} nor in its sibling lib "
        "(configure with -DZEROTH_CUDA=ON and a CUDA toolkit, or run with DS_ACCELERATOR=cpu)",
        program_folder().string());
  }
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Error("cannot load the GPU library: {}", dlerror());
  const auto entry = reinterpret_cast<GpuEntry>(dlsym(library, kGpuEntry));
  ZEROTH_CHECK(entry != nullptr, "{} lacks {}", path->string(), kGpuEntry);
  return entry();
}

}  // namespace zeroth::comm
