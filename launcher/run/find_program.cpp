#include "launcher/run/find_program.h"

#include <unistd.h>

#include <sstream>
#include <string_view>
#include <vector>

#include "base/complaints.h"
#include "base/printable.h"

namespace zeroth::launcher {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
constexpr size_t kMostPath = 1000;  // of what messages show

bool is_executable(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

bool is_there(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

[[noreturn]] void refuse(const std::filesystem::path& file) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(file, ignored);
  const char* reason = folder ? "it is a folder" : "no permission";
  throw ProgramError(kNotExecutable,
                     fmt::format("{} is not executable: {}", file.string(), reason));
}

std::vector<std::filesystem::path> folders_to_search(const std::filesystem::path& own_folder,
                                                     const std::string& path) {
  std::vector<std::filesystem::path> folders = {own_folder};
  std::istringstream entries(path);
  std::string entry;
  while (std::getline(entries, entry, ':')) folders.emplace_back(entry.empty() ? "." : entry);
  return folders;
}

// "; did you mean finetune?" where a program in these folders has a name like it.
std::string suggestion(const std::string& name, const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const std::filesystem::path& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (is_executable(entry.path())) names.push_back(entry.path().filename().string());
  const std::string_view near = nearest_name(name, {names.begin(), names.end()});
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::filesystem::path find_by_path(const std::filesystem::path& file) {
  if (is_executable(file)) return file;
  if (is_there(file)) refuse(file);
  const std::filesystem::path folder = file.parent_path();
  throw ProgramError(kNotFound,
                     fmt::format("{} does not exist{}", shortened(file.string(), kMostPath),
                                 suggestion(file.filename().string(), {folder})));
}

}  // namespace

std::filesystem::path own_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::filesystem::path find_program(const std::string& name, const std::filesystem::path& own_folder,
                                   const std::string& path) {
  if (name.find('/') != std::string::npos) return find_by_path(name);
  const std::vector<std::filesystem::path> folders = folders_to_search(own_folder, path);
  std::filesystem::path not_executable;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path file = folder / name;
    if (!is_there(file)) continue;
    if (is_executable(file)) return file;
    std::error_code ignored;
    if (!std::filesystem::is_directory(file, ignored)) not_executable = file;
  }
  if (!not_executable.empty()) refuse(not_executable);
  throw ProgramError(
      kNotFound,
      fmt::format("program '{}' was not found{}\n  looked beside zeroth in {} and in PATH "
                  "({}); a program elsewhere needs its path, as ./{}",
                  shortened(name), suggestion(name, folders), own_folder.string(),
                  shortened(path, kMostPath), shortened(name)));
}

}  // namespace zeroth::launcher
