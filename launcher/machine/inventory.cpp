#include "launcher/machine/inventory.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

namespace fs = std::filesystem;

// Names as in /proc/cpuinfo, x86 and Arm.
constexpr const char* kInstructions[] = {
    "avx",         "avx2",        "fma",         "f16c",     "avx_vnni", "avx512f",  "avx512bw",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd",
    "asimdhp",     "bf16",        "i8mm",        "sve",      "sve2"};

constexpr int64_t kEnoughLocked = int64_t{64} << 20;

std::string trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::vector<std::string> known_instructions(const std::string& flags) {
  std::istringstream words(flags);
  std::set<std::string> present;
  for (std::string word; words >> word;) present.insert(word);
  std::vector<std::string> known;
  for (const char* name : kInstructions)
    if (present.count(name) > 0) known.emplace_back(name);
  return known;
}

// Returns whether `path` is in `directory`; neither ends with a slash, except the root.
bool is_inside(const std::string& path, const std::string& directory) {
  return directory == "/" || path == directory || path.starts_with(directory + "/");
}

}  // namespace

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
  name.erase(std::remove(name.begin(), name.end(), '"'), name.end());
  utsname kernel{};
  if (::uname(&kernel) != 0) return name;
  return fmt::format("{}, {} {}, {}", name, kernel.sysname, kernel.release, kernel.machine);
}

}  // namespace zeroth::launcher
