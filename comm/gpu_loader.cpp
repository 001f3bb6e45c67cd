#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "comm/gpu.h"

namespace zeroth::comm {
namespace {

namespace fs = std::filesystem;

fs::path program_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

// Where the dynamic linker looks for the libraries of this program: its run path first.
std::vector<fs::path> linker_folders() {
  void* program = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size;
  if (dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  std::vector<Dl_serinfo> memory(size.dls_size / sizeof(Dl_serinfo) + 1);
  memory[0] = size;
  if (dlinfo(program, RTLD_DI_SERINFO, memory.data()) != 0) return {};
  const Dl_serpath* paths = memory[0].dls_serpath;
  std::vector<fs::path> folders;
  for (unsigned i = 0; i < size.dls_cnt; ++i) folders.emplace_back(paths[i].dls_name);
  return folders;
}

}  // namespace

std::optional<fs::path> gpu_library() {
  const fs::path bin = program_folder();
  std::vector<fs::path> folders = linker_folders();
  folders.insert(folders.begin(), {bin, bin / "../lib"});
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / "libzeroth_gpu.so")) return folder / "libzeroth_gpu.so";
  }
  return std::nullopt;
}

Gpu& load_gpu() {
  const auto path = gpu_library();
  if (!path) {
    throw Error(
        "no GPU support in this build: libzeroth_gpu.so lies in none of {}, its sibling lib and "
        "the run path (configure with -DZEROTH_CUDA=ON and a CUDA toolkit, or run with "
        "DS_ACCELERATOR=cpu)",
        program_folder().string());
  }
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw Error("cannot load the GPU library: {}", dlerror());
  const auto entry = reinterpret_cast<GpuEntry>(dlsym(library, kGpuEntry));
  ZEROTH_CHECK(entry != nullptr, "{} lacks {}", path->string(), kGpuEntry);
  return entry();
}

}  // namespace zeroth::comm
