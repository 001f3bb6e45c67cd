#include "base/machine/host_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/machine/cgroup.h"
#include "base/text/units.h"

namespace zeroth {
namespace {

constexpr int64_t kKib = 1024;
[[maybe_unused]] constexpr int64_t kMinResident = 256 << 20;  // below, gaps are small

}  // namespace

std::optional<FreeMemory> free_memory(const std::filesystem::path& root) {
  std::optional<FreeMemory> tightest;
  if (const auto kib = read_counter(root / "proc/meminfo", "MemAvailable:")) {
    tightest = {*kib * kKib, "MemAvailable in /proc/meminfo"};
  }
  for (const MemoryLimit& limit : memory_limits(root)) {
    const int64_t left = std::max<int64_t>(0, limit.bytes - limit.used);
    if (tightest && tightest->bytes <= left) continue;
    tightest = {left, fmt::format("{}: {}, {} in use", limit.file.string(),
                                  format_bytes(limit.bytes), format_bytes(limit.used))};
  }
  return tightest;
}

ProcessMemory process_memory() {
  ProcessMemory own;
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    const auto read = [&line](std::string_view key, int64_t& bytes) {
      if (line.starts_with(key)) bytes = std::atoll(line.c_str() + key.size()) * kKib;
    };
    read("VmRSS:", own.resident);
    read("VmHWM:", own.peak);
    read("VmPeak:", own.peak_virtual);
  }
  return own;
}

std::optional<FreeMemory> free_address_space() {
  rlimit limit{};
  const int64_t used = process_memory().peak_virtual;
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || used == 0) {
    return {};
  }
  const auto bytes = static_cast<int64_t>(limit.rlim_cur);
  return FreeMemory{std::max<int64_t>(0, bytes - used),
                    fmt::format("ulimit -v: {}", format_bytes(bytes))};
}

void retain_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);         // allocate every block from the heap
  mallopt(M_TRIM_THRESHOLD, -1);  // never shrink the heap
  mallopt(M_TOP_PAD, 64 << 20);   // grow it in large steps
#endif
}

void release_freed_memory() {
#if defined(__GLIBC__)
  if (process_memory().resident >= kMinResident) malloc_trim(0);
#endif
}

}  // namespace zeroth
