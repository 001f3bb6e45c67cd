#include "launcher/commands/report.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/Version.hpp>
#include <algorithm>
#include <boost/version.hpp>
#include <sstream>
#include <utility>

#include "base/files/run_path.h"
#include "base/machine/affinity.h"
#include "base/machine/cgroup.h"
#include "base/machine/cpu.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/nvml.h"

namespace zeroth::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEnoughShared = int64_t{512} << 20;  // DeepSpeed's own threshold
constexpr int kOldestCapability = 70;                  // minimum of current LibTorch builds

using Warnings = std::vector<std::string>;

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string or_unknown(const std::string& text) {
  return text.empty() ? "unknown" : text;
}

std::string cuda_version(int version) {
  return version == 0 ? "unknown" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Returns the directory where finetune, which has the run path of this program, finds LibTorch;
// empty if it does not. Searches LD_LIBRARY_PATH first, like the loader.
fs::path libtorch_directory(const std::string& library_path) {
  std::vector<fs::path> directories;
  std::istringstream along(library_path);
  for (std::string directory; std::getline(along, directory, ':');)
    if (!directory.empty()) directories.emplace_back(directory);
  const std::vector<fs::path> run_path = run_path_directories();
  directories.insert(directories.end(), run_path.begin(), run_path.end());
  for (const fs::path& directory : directories)
    if (file_exists(directory / "libtorch_cpu.so"))
      return directory.lexically_normal().parent_path();
  return {};
}

ReportSection versions(const fs::path& zeroth_directory, const std::string& library_path,
                       Warnings& warnings) {
  const fs::path torch = libtorch_directory(library_path);
  if (torch.empty()) {
    warnings.push_back(
        "LibTorch was not found in LD_LIBRARY_PATH or the programs' run path: finetune cannot "
        "start until LD_LIBRARY_PATH contains the folder of libtorch_cpu.so");
  }
  return {"Versions",
          {{"Zeroth", fmt::format("{}, in {}", ZEROTH_VERSION, zeroth_directory.string())},
           {"LibTorch", fmt::format("{}, {}", ZEROTH_TORCH_VERSION,
                                    torch.empty() ? "not found" : "in " + torch.string())},
           {"CUDA of LibTorch", or_unknown(ZEROTH_TORCH_CUDA)},
           {"CUDA toolkit of the build",
            std::string(ZEROTH_CUDA_TOOLKIT).empty() ? "none" : ZEROTH_CUDA_TOOLKIT},
           {"NCCL of the build", std::string(ZEROTH_NCCL).empty() ? "none" : ZEROTH_NCCL},
           {"compiler", "g++ compatible " __VERSION__},
           {"Boost, fmt, CLI11",
            fmt::format("{}.{}.{}, {}.{}.{}, {}", BOOST_VERSION / 100000,
                        BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100, FMT_VERSION / 10000,
                        FMT_VERSION / 100 % 100, FMT_VERSION % 100, CLI11_VERSION)},
           {"system", describe_system()}}};
}

ReportSection features(const fs::path& zeroth_directory) {
  const bool built = std::string(ZEROTH_CUDA_TOOLKIT) != "";
  const bool found = file_exists(zeroth_directory / "libzeroth_gpu.so") ||
                     file_exists(zeroth_directory / "../lib/libzeroth_gpu.so");
  const std::string gpu = found   ? "built in (NCCL)"
                          : built ? "built, but libzeroth_gpu.so is not beside this program"
                                  : "not built: configure with -DZEROTH_CUDA=ON, a CUDA toolkit "
                                    "and a LibTorch for CUDA";
  return {"Built in",
          {{"CPU ranks", "built in (shared memory, else Gloo)"},
           {"GPU ranks", gpu},
           {"kernels compiled at first use", "none: all are compiled ahead of time"},
           {"sanitizers", ZEROTH_SANITIZED ? "address, undefined behavior: slow" : "off"}}};
}

ReportSection processor(Warnings& warnings) {
  const CpuInfo processor = probe_cpu();
  const auto allowed = static_cast<int>(allowed_cores().size());
  const auto quota = cpu_quota();
  if (quota && *quota < allowed)
    warnings.push_back(
        fmt::format("the control group limits CPU time to {:.1f} of {} cores: ranks will be "
                    "throttled; bind to fewer with --bind_core_list",
                    *quota, allowed));
  return {
      "Processor",
      {{"model", or_unknown(processor.model)},
       {"sockets, cores, threads",
        fmt::format("{}, {}, {}", processor.sockets, processor.cores, processor.threads)},
       {"threads for ranks", fmt::format("{}", allowed)},
       {"time limit (cgroup)", quota ? fmt::format("{:.1f} threads", *quota) : "none"},
       {"instruction set in use", describe_cpu_isa()},
       {"instructions", or_unknown(fmt::format("{}", fmt::join(processor.instructions, " ")))}}};
}

ReportSection memory(Warnings& warnings) {
  const auto total = read_counter("/proc/meminfo", "MemTotal:");
  const auto available = read_counter("/proc/meminfo", "MemAvailable:");
  const auto limit = memory_limit();
  const SpaceInfo shared = probe_space("/dev/shm");
  const ProbeResult locked = probe_locked_memory();
  if (!locked.good)
    warnings.push_back(
        fmt::format("only {} can be locked: pinned buffers beyond that fall back to pageable "
                    "memory; 'ulimit -l unlimited' (docker: --ulimit memlock=-1) removes the limit",
                    locked.text));
  const auto bytes = [](std::optional<int64_t> kib) {
    return kib ? format_bytes(*kib * 1024) : std::string("unknown");
  };
  return {"Memory",
          {{"machine", fmt::format("{}, {} available", bytes(total), bytes(available))},
           {"limit (cgroup)", limit ? format_bytes(*limit) : "none"},
           {"/dev/shm", fmt::format("{}, {} free", format_bytes(shared.total_bytes),
                                    format_bytes(shared.free_bytes))},
           {"limit of locked memory", locked.text}}};
}

ReportSection gpus(const LaunchEnvironment& environment, Warnings& warnings) {
  const auto report = query_nvml();
  if (!report) return {"GPUs", {{"driver", "none found (no NVML)"}}};
  ReportSection section{
      "GPUs",
      {{"driver", fmt::format("{}, supports CUDA up to {}", or_unknown(report->driver),
                              cuda_version(report->cuda_version))}}};
  for (size_t i = 0; i < report->gpus.size(); ++i) {
    const GpuReport::GpuInfo& gpu = report->gpus[i];
    section.lines.emplace_back(fmt::format("GPU {}", i),
                               fmt::format("{}, {}, compute capability {}.{}", or_unknown(gpu.name),
                                           format_bytes(gpu.memory_bytes), gpu.major, gpu.minor));
    if (gpu.major > 0 && gpu.major * 10 + gpu.minor < kOldestCapability)
      warnings.push_back(fmt::format("GPU {} is older than what LibTorch is built for", i));
  }
  const auto count = static_cast<int>(report->gpus.size());
  const auto visible = visible_gpus(count, environment.cuda_visible_devices);
  section.lines.emplace_back("visible to ranks",
                             or_unknown(fmt::format("{}", fmt::join(visible, ","))));
  const std::string shared = shared_memory_warning(visible.size(), probe_space("/dev/shm"));
  if (!shared.empty()) warnings.push_back(shared);
  return section;
}

ReportSection files(Warnings& warnings) {
  std::error_code ignored;
  const fs::path here = fs::current_path(ignored);
  const SpaceInfo space = probe_space(here);
  const ProbeResult ring = probe_io_uring();
  if (::access(here.c_str(), W_OK) != 0)
    warnings.push_back(fmt::format("{} is not writable", here.string()));
  return {"Files",
          {{"io_uring", ring.text},
           {"working folder",
            fmt::format("{}: {}, {} free of {}", here.string(), or_unknown(space.type),
                        format_bytes(space.free_bytes), format_bytes(space.total_bytes))}}};
}

ReportSection programs(const fs::path& zeroth_directory, const LaunchEnvironment& environment,
                       Warnings& warnings) {
  ReportSection section{"Programs", {}};
  for (const char* name : {"zeroth", "finetune"}) {
    try {
      section.lines.emplace_back(name,
                                 find_program(name, zeroth_directory, environment.path).string());
    } catch (const ProgramError& error) {
      section.lines.emplace_back(name, "not found");
      warnings.push_back(error.what());
    }
  }
  section.lines.emplace_back("default device", "");
  try {
    const Accelerator device =
        resolve_accelerator(environment.ds_accelerator, probe_machine(environment));
    section.lines.back().second = to_string(device);
  } catch (const Error& error) {
    section.lines.back().second = "none";
    warnings.push_back(error.what());
  }
  return section;
}

}  // namespace

std::vector<ReportSection> make_report(const fs::path& zeroth_directory,
                                       const LaunchEnvironment& environment) {
  Warnings warnings;
  std::vector<ReportSection> sections = {
      versions(zeroth_directory, environment.library_path, warnings),
      features(zeroth_directory),
      processor(warnings),
      memory(warnings),
      gpus(environment, warnings),
      files(warnings),
      programs(zeroth_directory, environment, warnings)};
  if (warnings.empty()) return sections;
  ReportSection last{"Warnings", {}};
  for (std::string& warning : warnings) last.lines.emplace_back("!", std::move(warning));
  sections.push_back(std::move(last));
  return sections;
}

std::string shared_memory_warning(size_t gpus, const SpaceInfo& shared) {
  if (gpus < 2 || shared.total_bytes >= kEnoughShared) return "";
  return fmt::format(
      "/dev/shm has only {}: NCCL exchanges data between GPUs there; in docker, --shm-size=1gb "
      "makes it larger",
      format_bytes(shared.total_bytes));
}

std::string format_report(const std::vector<ReportSection>& sections) {
  std::string text;
  for (const ReportSection& section : sections) {
    size_t width = 0;
    for (const auto& line : section.lines) width = std::max(width, line.first.size());
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section.title);
    for (const auto& [name, value] : section.lines)
      text += fmt::format("  {:<{}}  {}\n", name, width, printable(value));
  }
  return text;
}

}  // namespace zeroth::launcher
