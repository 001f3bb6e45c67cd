#include "launcher/machine/cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

bool contains(const std::vector<int>& cores, int core) {
  return std::ranges::find(cores, core) != cores.end();
}

// `list` is the text for messages.
int parse_core(std::string_view digits, const std::string& list) {
  const auto core = parse_number<int>(digits);
  if (!core || *core < 0)
    throw UsageError("--bind_core_list {}: expected cores and ranges as in 0-3,8", list);
  return *core;
}

namespace fs = std::filesystem;
using GpuInfo = GpuReport::GpuInfo;

// Returns null if `id` names no GPU, or several.
const GpuInfo* find_gpu(const std::string& id, const std::vector<GpuInfo>& gpus) {
  if (const auto index = parse_number<size_t>(id))
    return *index < gpus.size() ? &gpus[*index] : nullptr;
  const auto is_named = [&](const GpuInfo& gpu) { return gpu.uuid.starts_with(id); };
  const auto found = std::ranges::find_if(gpus, is_named);
  return std::ranges::count_if(gpus, is_named) == 1 ? &*found : nullptr;
}

bool is_core_of_node(int core, int node, const fs::path& root) {
  std::error_code ignored;
  return fs::exists(root / fmt::format("sys/devices/system/cpu/cpu{}/node{}", core, node), ignored);
}

}  // namespace

int read_sysfs_number(const fs::path& file) {
  std::ifstream in(file);
  int number = -1;
  in >> number;
  return in ? number : -1;
}

std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed) {
  std::vector<int> cores;
  const std::string list = shortened(text);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = next_field(rest, ',');
    const size_t dash = part.find('-');
    const int first = parse_core(part.substr(0, dash), list);
    const int last = dash == part.npos ? first : parse_core(part.substr(dash + 1), list);
    if (last < first)
      throw UsageError("--bind_core_list {}: range {} is descending", list, shortened(part));
    for (int core = first; core <= last; ++core) {
      if (!contains(allowed, core))
        throw UsageError("--bind_core_list {}: core {} is not available; available are {}", list,
                         core, shortened(fmt::format("{}", fmt::join(allowed, ","))));
      if (contains(cores, core))
        throw UsageError("--bind_core_list {}: core {} is repeated", list, core);
      cores.push_back(core);
    }
  }
  if (cores.empty()) throw UsageError("--bind_core_list '{}' contains no cores", list);
  return cores;
}

std::vector<std::vector<int>> split_cores(const std::vector<int>& cores,
                                          const std::vector<std::vector<int>>& preferred) {
  const size_t parts = preferred.size();
  std::vector<std::vector<int>> split(parts, cores);
  if (cores.size() < parts) return split;
  for (std::vector<int>& part : split) part.clear();
  std::vector<int> left = cores;
  const auto num_missing = [&](size_t part) {
    return cores.size() / parts + (part < cores.size() % parts ? 1 : 0) - split[part].size();
  };
  const auto assign = [&](size_t part, const std::vector<int>& from, size_t count) {
    std::erase_if(left, [&](int core) {
      if (count == 0 || !contains(from, core)) return false;
      split[part].push_back(core);
      --count;
      return true;
    });
  };
  for (const std::vector<int>& group : std::set(preferred.begin(), preferred.end())) {
    auto num_sharing = static_cast<size_t>(std::ranges::count(preferred, group));
    for (size_t part = 0; part < parts; ++part) {
      if (preferred[part] != group) continue;
      const size_t num_available = static_cast<size_t>(
          std::ranges::count_if(left, [&](int core) { return contains(group, core); }));
      assign(part, group,
             std::min(num_missing(part), (num_available + num_sharing - 1) / num_sharing));
      --num_sharing;
    }
  }
  for (size_t part = 0; part < parts; ++part) assign(part, cores, num_missing(part));
  return split;
}

std::map<std::string, std::vector<int>> numa_cores(const std::vector<std::string>& ids,
                                                   const std::vector<GpuInfo>& gpus,
                                                   const std::vector<int>& cores,
                                                   const fs::path& root) {
  std::map<std::string, std::vector<int>> preferred;
  for (const std::string& id : ids) {
    const GpuInfo* gpu = find_gpu(id, gpus);
    if (gpu == nullptr) continue;
    const fs::path device = root / "sys/bus/pci/devices" / gpu->pci_address;
    const int node = read_sysfs_number(device / "numa_node");
    if (node < 0) continue;  // the kernel may report -1 on a machine with one node
    for (const int core : cores)
      if (is_core_of_node(core, node, root)) preferred[id].push_back(core);
  }
  return preferred;
}

}  // namespace zeroth::launcher
