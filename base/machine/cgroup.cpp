#include "base/machine/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace zeroth {
namespace {

namespace fs = std::filesystem;

// Version 1 reports the largest number of pages if there is no limit. Larger values than this mean
// "none".
constexpr int64_t kNoLimit = int64_t{1} << 62;

bool contains_item(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

// Returns the path of this process's group from /proc/self/cgroup: lines "number:controllers:path".
std::optional<std::string> cgroup_path(const std::string& controller, bool unified,
                                       const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : contains_item(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

std::optional<fs::path> mount_point(const std::string& controller, bool unified,
                                    const fs::path& root) {
  std::ifstream mounts(root / "proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string source, directory, type, options;
    words >> source >> directory >> type >> options;
    const bool found =
        unified ? type == "cgroup2" : type == "cgroup" && contains_item(options, controller);
    if (found) return root / fs::path(directory).relative_path();
  }
  return std::nullopt;
}

std::optional<Cgroup> find(const std::string& controller, bool unified, const fs::path& root) {
  const auto mount = mount_point(controller, unified, root);
  const auto path = cgroup_path(controller, unified, root);
  if (!mount || !path) return std::nullopt;
  // A container may see its own group as the full hierarchy, under a path outside of it.
  const fs::path directory = (*mount / fs::path(*path).relative_path()).lexically_normal();
  std::error_code ignored;
  return Cgroup{fs::is_directory(directory, ignored) ? directory : *mount, *mount, unified};
}

// Returns the directories of the group and the groups that enclose it, innermost first.
std::vector<fs::path> ancestor_directories(const Cgroup& group) {
  std::vector<fs::path> directories;
  for (fs::path directory = group.directory;; directory = directory.parent_path()) {
    directories.push_back(directory);
    if (directory == group.mount || !directory.has_relative_path()) return directories;
  }
}

std::optional<int64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

std::optional<double> read_quota(const fs::path& directory, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream in(directory / "cpu.max");
    in >> quota >> period;  // "max 100000" is no number: no quota
  } else {
    quota = static_cast<double>(read_number(directory / "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(read_number(directory / "cpu.cfs_period_us").value_or(0));
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// Returns the bytes that the group and its descendants use, without page cache. The names of both
// versions are in Linux's Documentation/admin-guide: cgroup-v2.rst and cgroup-v1/memory.rst.
int64_t used_bytes(const fs::path& directory, bool unified) {
  const auto held = read_number(directory / (unified ? "memory.current" : "memory.usage_in_bytes"));
  const std::string prefix = unified ? "" : "total_";  // total of the group's subtree
  int64_t cache = 0;
  for (const char* list : {"active_file", "inactive_file"}) {
    cache += read_counter(directory / "memory.stat", prefix + list).value_or(0);
  }
  return std::max<int64_t>(0, held.value_or(0) - cache);
}

template <typename Number>
void keep_min(std::optional<Number>& min_value, std::optional<Number> value) {
  if (value && (!min_value || *value < *min_value)) min_value = value;
}

}  // namespace

std::optional<Cgroup> find_cgroup(const std::string& controller, const fs::path& root) {
  const auto first = find(controller, false, root);
  return first ? first : find(controller, true, root);
}

std::vector<MemoryLimit> memory_limits(const fs::path& root) {
  std::vector<MemoryLimit> limits;
  const auto group = find_cgroup("memory", root);
  if (!group) return limits;
  for (const fs::path& directory : ancestor_directories(*group)) {
    const fs::path file = directory / (group->unified ? "memory.max" : "memory.limit_in_bytes");
    const auto limit = read_number(file);
    if (limit && *limit < kNoLimit)
      limits.push_back({file, *limit, used_bytes(directory, group->unified)});
  }
  return limits;
}

std::optional<int64_t> memory_limit(const fs::path& root) {
  std::optional<int64_t> min_value;
  for (const MemoryLimit& limit : memory_limits(root)) keep_min(min_value, {limit.bytes});
  return min_value;
}

std::optional<double> cpu_quota(const fs::path& root) {
  const auto group = find_cgroup("cpu", root);
  if (!group) return std::nullopt;
  std::optional<double> min_value;
  for (const fs::path& directory : ancestor_directories(*group))
    keep_min(min_value, read_quota(directory, group->unified));
  return min_value;
}

std::optional<int64_t> read_counter(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return std::nullopt;
}

}  // namespace zeroth
