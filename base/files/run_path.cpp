#include "base/files/run_path.h"

#include <dlfcn.h>
#include <link.h>

#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace zeroth {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOrigin = "$ORIGIN";

// Returns the run path that was linked into the program.
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

}  // namespace

fs::path program_directory() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

std::vector<fs::path> run_path_directories() {
  std::vector<fs::path> found;
  std::istringstream entries(run_path());
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (entry.starts_with(kOrigin)) entry.replace(0, kOrigin.size(), program_directory().string());
    if (fs::path(entry).is_absolute()) found.emplace_back(entry);
  }
  return found;
}

std::optional<fs::path> find_program_library(const std::string& name) {
  const fs::path bin = program_directory();
  std::vector<fs::path> directories = run_path_directories();
  directories.insert(directories.begin(), {bin, bin / "../lib"});
  for (const fs::path& directory : directories) {
    std::error_code unreadable;
    if (fs::exists(directory / name, unreadable)) return directory / name;
  }
  return std::nullopt;
}

}  // namespace zeroth
