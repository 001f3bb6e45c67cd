#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"
#include "comm/gpu.h"

namespace zeroth::comm {

Gpu& load_gpu() {
  namespace fs = std::filesystem;
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  std::string tried;
  for (const fs::path& folder : {bin, bin / "../lib"}) {
    const fs::path path = folder / "libzeroth_gpu.so";
    if (!fs::exists(path)) continue;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) throw Error("cannot load the GPU library: {}", dlerror());
    auto entry = reinterpret_cast<GpuEntry>(dlsym(library, kGpuEntry));
    ZEROTH_CHECK(entry != nullptr, "{} lacks {}", path.string(), kGpuEntry);
    return entry();
  }
  throw Error(
      "no GPU support in this build: libzeroth_gpu.so lies neither in {} nor in its sibling lib "
      "(configure with -DZEROTH_CUDA=ON and a CUDA toolkit, or run with DS_ACCELERATOR=cpu)",
      bin.string());
}

}  // namespace zeroth::comm
