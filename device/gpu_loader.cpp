#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "device/gpu.h"
#include "device/gpu_stamp.h"

namespace zeroth::device {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOrigin = "$ORIGIN";

fs::path program_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

// What was linked into the program as its run path. No variable of the environment is part of it.
std::string run_path() {
  link_map* program = nullptr;
  if (dlinfo(dlopen(nullptr, RTLD_LAZY), RTLD_DI_LINKMAP, &program) != 0) return "";
  const char* texts = nullptr;
  size_t offset = 0;
  for (const ElfW(Dyn)* entry = program->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) texts = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_RUNPATH || entry->d_tag == DT_RPATH) offset = entry->d_un.d_val;
  }
  return texts != nullptr && offset > 0 ? texts + offset : "";
}

std::vector<fs::path> folders() {
  const fs::path bin = program_folder();
  std::vector<fs::path> found = {bin, bin / "../lib"};
  std::istringstream entries(run_path());
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (entry.starts_with(kOrigin)) entry.replace(0, kOrigin.size(), bin.string());
    if (fs::path(entry).is_absolute()) found.emplace_back(entry);
  }
  return found;
}

// Before anything of it is called: its functions are found by their index in a table, not by name.
void require_same_build(void* library, const fs::path& path) {
  const auto stamp = reinterpret_cast<GpuStamp>(dlsym(library, kGpuStampEntry));
  const std::string found = stamp == nullptr ? "nothing" : fmt::format("\"{}\"", stamp());
  if (stamp != nullptr && std::string_view(stamp()) == kGpuStamp) return;
  throw Error(
      "{} is of another build than this program: it says {}, the program \"{}\"; build both from "
      "the same sources (cmake --build BUILD_FOLDER), install both, or run with "
      "DS_ACCELERATOR=cpu",
      path.string(), found, kGpuStamp);
}

}  // namespace

std::optional<fs::path> gpu_library() {
  for (const fs::path& folder : folders()) {
    std::error_code unreadable;
    if (fs::exists(folder / "libzeroth_gpu.so", unreadable)) return folder / "libzeroth_gpu.so";
  }
  return std::nullopt;
}

void* gpu_entry(const char* name) {
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
  require_same_build(library, *path);
  void* const entry = dlsym(library, name);
  ZEROTH_CHECK(entry != nullptr, "{} lacks {}", path->string(), name);
  return entry;
}

Gpu& load_gpu() {
  return reinterpret_cast<GpuEntry>(gpu_entry(kGpuEntry))();
}

}  // namespace zeroth::device
