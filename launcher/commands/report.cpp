#include "launcher/commands/report.h"

#include <fmt/ranges.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/Version.hpp>
#include <algorithm>
#include <boost/version.hpp>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files/run_path.h"
#include "base/machine/cgroup.h"
#include "base/machine/cpu.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/nvml.h"

namespace zeroth::launcher {
namespace {

namespace fs = std::filesystem;

// Names as in /proc/cpuinfo, x86 and Arm.
constexpr const char* kInstructions[] = {
    "avx",         "avx2",        "fma",         "f16c",     "avx_vnni", "avx512f",  "avx512bw",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd",
    "asimdhp",     "bf16",        "i8mm",        "sve",      "sve2"};

constexpr int64_t kEnoughLocked = int64_t{64} << 20;
constexpr int64_t kEnoughShared = int64_t{512} << 20;  // DeepSpeed's own threshold
constexpr int kOldestCapability = 70;                  // minimum of current LibTorch builds

using Warnings = std::vector<std::string>;

std::string text_or(const std::string& text, const char* otherwise) {
  return text.empty() ? otherwise : text;
}

std::string or_unknown(const std::string& text) {
  return text_or(text, "unknown");
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
           {"CUDA toolkit of the build", text_or(ZEROTH_CUDA_TOOLKIT, "none")},
           {"NCCL of the build", text_or(ZEROTH_NCCL, "none")},
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

std::string trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::vector<std::string> known_instructions(const std::string& flags) {
  std::istringstream words(flags);
  const std::set<std::string> present(std::istream_iterator<std::string>(words), {});
  std::vector<std::string> known;
  for (const char* name : kInstructions)
    if (present.contains(name)) known.emplace_back(name);
  return known;
}

// Returns whether `path` is in `directory`; neither ends with a slash, except the root.
bool is_inside(const std::string& path, const std::string& directory) {
  return directory == "/" || path == directory || path.starts_with(directory + "/");
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

CpuInfo probe_cpu(const fs::path& root) {
  CpuInfo processor;
  std::set<std::string> sockets, cores;
  std::string socket;
  std::ifstream in(root / "proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trim(line.substr(0, colon));
    const std::string value = trim(line.substr(colon + 1));
    if (key == "processor") ++processor.threads;
    if (key == "model name" && processor.model.empty()) processor.model = value;
    if (key == "physical id") sockets.insert(socket = value);
    if (key == "core id") cores.insert(socket + ":" + value);
    const bool is_flags = key == "flags" || key == "Features";
    if (is_flags && processor.instructions.empty())
      processor.instructions = known_instructions(value);
  }
  processor.cores = static_cast<int>(cores.size());
  processor.sockets = static_cast<int>(sockets.size());
  return processor;
}

SpaceInfo probe_space(const fs::path& path, const fs::path& root) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return {};
  const auto block = static_cast<int64_t>(status.f_frsize);
  SpaceInfo space{block * static_cast<int64_t>(status.f_blocks),
                  block * static_cast<int64_t>(status.f_bavail),
                  {}};
  std::error_code ignored;
  const std::string real = fs::canonical(path, ignored).string();
  std::ifstream mounts(root / "proc/self/mounts");
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string source, directory, type;
    words >> source >> directory >> type;
    if (directory.size() < longest || !is_inside(real, directory)) continue;
    longest = directory.size();
    space.type = type;
  }
  return space;
}

ProbeResult probe_io_uring() {
  io_uring_params parameters{};
  const FileDescriptor ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &parameters)));
  if (ring.get() >= 0) return {true, "available"};
  if (errno == ENOSYS) return {false, "not supported by this kernel"};
  if (errno == EPERM) return {false, "forbidden here (by seccomp or kernel.io_uring_disabled)"};
  return {false, "fails: " + system_reason(errno)};
}

ProbeResult probe_locked_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {false, "unknown"};
  if (limit.rlim_cur == RLIM_INFINITY) return {true, "no limit"};
  const auto bytes = static_cast<int64_t>(limit.rlim_cur);
  return {bytes >= kEnoughLocked, format_bytes(bytes)};
}

std::string describe_system(const fs::path& root) {
  std::string name = "unknown system";
  std::ifstream in(root / "etc/os-release");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("PRETTY_NAME=")) name = line.substr(12);
  std::erase(name, '"');
  utsname kernel{};
  if (::uname(&kernel) != 0) return name;
  return fmt::format("{}, {} {}, {}", name, kernel.sysname, kernel.release, kernel.machine);
}

}  // namespace zeroth::launcher
