#include "launcher/run/find_program.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/complaints.h"
#include "base/printable.h"
#include "launcher/flags/foreign_commands.h"

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

std::vector<std::string> programs_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_executable(entry.path())) names.push_back(entry.path().filename().string());
  return names;
}

std::string_view nearest(const std::string& name, const std::vector<std::string>& names) {
  return nearest_name(name, {names.begin(), names.end()});
}

std::string question(std::string_view name) {
  return name.empty() ? "" : fmt::format("; did you mean {}?", name);
}

// "; did you mean finetune?" where a command of zeroth's own or a program beside it has a name like
// it. Of the many along PATH only one that is a slip of the finger away.
std::string suggestion(const std::string& name, const std::vector<std::filesystem::path>& folders) {
  constexpr size_t kShortest = 4;  // two of three letters are like any other three
  const std::filesystem::path& own = folders.front();
  std::vector<std::string> names = {"report", "check-config", "checkpoint", "export"};
  const bool is_in_path = std::find(folders.begin() + 1, folders.end(), own) != folders.end();
  for (std::string& program : programs_in(own))
    if (!is_in_path || program == "finetune" || program == "comm-bench")
      names.push_back(std::move(program));
  if (const std::string_view near = nearest(name, names); !near.empty()) return question(near);
  if (name.size() < kShortest) return "";
  for (size_t i = 1; i < folders.size(); ++i)
    for (const std::string& program : programs_in(folders[i]))
      if (edit_distance(name, program) <= 1) return question(program);
  return "";
}

std::filesystem::path find_by_path(const std::filesystem::path& file) {
  if (is_executable(file)) return file;
  if (is_there(file)) refuse(file);
  const std::vector<std::string> beside = programs_in(file.parent_path());
  throw ProgramError(kNotFound,
                     fmt::format("{} does not exist{}", shortened(file.string(), kMostPath),
                                 question(nearest(file.filename().string(), beside))));
}

}  // namespace

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
  if (const std::string_view instead = instead_of(name); !instead.empty())
    throw ProgramError(kNotFound, fmt::format("{} is DeepSpeed's: {}", name, instead));
  throw ProgramError(
      kNotFound,
      fmt::format("program '{}' was not found{}\n  looked beside zeroth in {} and in PATH "
                  "({}); a program elsewhere needs its path, as ./{}",
                  shortened(name), suggestion(name, folders), own_folder.string(),
                  shortened(path, kMostPath), shortened(name)));
}

}  // namespace zeroth::launcher
