#include "launcher/machine/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/machine/cores.h"
#include "launcher/machine/nvml.h"

namespace zeroth::launcher {
namespace {

int count_gpu_device_files() {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string digits = name.starts_with("nvidia") ? name.substr(6) : "";
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos) ++count;
  }
  return count;
}

// Orders cores so that contiguous ranges share as few physical cores and sockets as possible.
std::vector<int> order_by_topology(const std::vector<int>& cores) {
  std::vector<std::tuple<int, int, int>> keyed;
  for (int core : cores) {
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", core);
    keyed.emplace_back(read_sysfs_number(topology + "physical_package_id"),
                       read_sysfs_number(topology + "core_id"), core);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<int> ordered;
  for (const auto& key : keyed) ordered.push_back(std::get<2>(key));
  return ordered;
}

}  // namespace

const char* to_string(Accelerator accelerator) {
  return accelerator == Accelerator::kCuda ? "cuda" : "cpu";
}

std::optional<std::string> read_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

LaunchEnvironment LaunchEnvironment::from_process() {
  return {read_variable("DS_ACCELERATOR"), read_variable("CUDA_VISIBLE_DEVICES"),
          read_variable("PATH").value_or(""), read_variable("LD_LIBRARY_PATH").value_or("")};
}

Machine probe_machine(const LaunchEnvironment& environment) {
  Machine machine{order_by_topology(allowed_cores()), {}};
  if (environment.ds_accelerator == "cpu") return machine;
  const auto report = query_nvml();
  const int count = report ? static_cast<int>(report->gpus.size()) : count_gpu_device_files();
  machine.gpus = visible_gpus(count, environment.cuda_visible_devices);
  if (report) machine.numa_cores = numa_cores(machine.gpus, report->gpus, machine.cores);
  return machine;
}

std::vector<std::string> visible_gpus(int count,
                                      const std::optional<std::string>& visible_devices) {
  std::vector<std::string> ids;
  if (count == 0) return ids;
  if (!visible_devices) {
    for (int i = 0; i < count; ++i) ids.push_back(std::to_string(i));
    return ids;
  }
  for (std::string_view rest = *visible_devices; !rest.empty();) {
    std::string id(next_field(rest, ','));
    std::erase(id, ' ');
    const auto index = parse_number<int>(id);
    if (id.empty() || (index && (*index < 0 || *index >= count))) break;
    if (std::find(ids.begin(), ids.end(), id) != ids.end()) return {};
    ids.push_back(id);
  }
  return ids;
}

Accelerator resolve_accelerator(const std::optional<std::string>& ds_accelerator,
                                const Machine& machine) {
  if (!ds_accelerator || ds_accelerator->empty())
    return machine.gpus.empty() ? Accelerator::kCpu : Accelerator::kCuda;
  if (ds_accelerator == "cpu") return Accelerator::kCpu;
  if (ds_accelerator != "cuda")
    throw Error("DS_ACCELERATOR is '{}'; must be cpu or cuda", shortened(*ds_accelerator));
  if (machine.gpus.empty())
    throw Error("DS_ACCELERATOR is cuda, but no GPU is visible (see CUDA_VISIBLE_DEVICES)");
  return Accelerator::kCuda;
}

void check_timeout(const std::optional<std::string>& deepspeed_timeout) {
  if (!deepspeed_timeout || deepspeed_timeout->empty()) return;
  if (parse_number<int>(*deepspeed_timeout).value_or(0) < 1)
    throw Error(
        "DEEPSPEED_TIMEOUT is '{}'; must be whole minutes, at least 1 (zeroth --timeout is in "
        "seconds)",
        shortened(*deepspeed_timeout));
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace zeroth::launcher
