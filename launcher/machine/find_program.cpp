#include "launcher/machine/find_program.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "launcher/flags/foreign_flags.h"

namespace zeroth::launcher {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
constexpr size_t kMaxShownPath = 1000;  // characters shown in messages

bool is_executable(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

[[noreturn]] void throw_not_executable(const std::filesystem::path& file) {
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(file, ignored);
  const char* reason = directory ? "it is a folder" : "no permission";
  throw ProgramError(kNotExecutable,
                     fmt::format("{} is not executable: {}", file.string(), reason));
}

std::vector<std::filesystem::path> search_directories(const std::filesystem::path& zeroth_directory,
                                                      const std::string& path) {
  std::vector<std::filesystem::path> directories = {zeroth_directory};
  std::istringstream entries(path);
  std::string entry;
  while (std::getline(entries, entry, ':')) directories.emplace_back(entry.empty() ? "." : entry);
  return directories;
}

std::vector<std::string> list_programs(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (is_executable(entry.path())) names.push_back(entry.path().filename().string());
  return names;
}

std::string_view nearest(const std::string& name, const std::vector<std::string>& names) {
  return nearest_name(name, {names.begin(), names.end()});
}

std::string did_you_mean(std::string_view name) {
  return name.empty() ? "" : fmt::format("; did you mean {}?", name);
}

// Returns "; did you mean finetune?" if a command of zeroth or a program beside it has a similar
// name. Of the many programs in PATH it suggests only one with a single typo.
std::string suggestion(const std::string& name,
                       const std::vector<std::filesystem::path>& directories) {
  constexpr size_t kMinNameLength = 4;  // shorter names resemble too many others
  const std::filesystem::path& own = directories.front();
  std::vector<std::string> names = {"report", "check-config", "checkpoint", "export"};
  const bool is_in_path =
      std::find(directories.begin() + 1, directories.end(), own) != directories.end();
  for (std::string& program : list_programs(own))
    if (!is_in_path || program == "finetune" || program == "comm-bench")
      names.push_back(std::move(program));
  if (const std::string_view near = nearest(name, names); !near.empty()) return did_you_mean(near);
  if (name.size() < kMinNameLength) return "";
  for (size_t i = 1; i < directories.size(); ++i)
    for (const std::string& program : list_programs(directories[i]))
      if (edit_distance(name, program) <= 1) return did_you_mean(program);
  return "";
}

std::filesystem::path find_by_path(const std::filesystem::path& file) {
  if (is_executable(file)) return file;
  if (file_exists(file)) throw_not_executable(file);
  const std::vector<std::string> siblings = list_programs(file.parent_path());
  throw ProgramError(kNotFound,
                     fmt::format("{} does not exist{}", shortened(file.string(), kMaxShownPath),
                                 did_you_mean(nearest(file.filename().string(), siblings))));
}

}  // namespace

bool file_exists(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

std::filesystem::path find_program(const std::string& name,
                                   const std::filesystem::path& zeroth_directory,
                                   const std::string& path) {
  if (name.find('/') != std::string::npos) return find_by_path(name);
  const std::vector<std::filesystem::path> directories = search_directories(zeroth_directory, path);
  std::filesystem::path not_executable;
  for (const std::filesystem::path& directory : directories) {
    const std::filesystem::path file = directory / name;
    if (!file_exists(file)) continue;
    if (is_executable(file)) return file;
    std::error_code ignored;
    if (!std::filesystem::is_directory(file, ignored)) not_executable = file;
  }
  if (!not_executable.empty()) throw_not_executable(not_executable);
  if (const std::string_view instead = replacement_for(name); !instead.empty())
    throw ProgramError(kNotFound, fmt::format("{} is a command of DeepSpeed: {}", name, instead));
  throw ProgramError(
      kNotFound,
      fmt::format("program '{}' was not found{}\n  looked beside zeroth in {} and in PATH "
                  "({}); a program elsewhere needs its path, as ./{}",
                  shortened(name), suggestion(name, directories), zeroth_directory.string(),
                  shortened(path, kMaxShownPath), shortened(name)));
}

}  // namespace zeroth::launcher
