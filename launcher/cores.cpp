#include "launcher/cores.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "launcher/cli.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxCores = 8192;  // the kernel's own limit on x86-64

// As many cpu_set_t as kMaxCores bits need: one alone ends at 1024.
struct CoreMask {
  std::array<cpu_set_t, kMaxCores / CPU_SETSIZE> sets{};

  cpu_set_t* data() { return sets.data(); }
  size_t size_bytes() const { return sizeof(sets); }
};

int parse_core(const std::string& digits, const std::string& text) {
  int core = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, core);
  if (parsed.ec != std::errc() || parsed.ptr != end || core < 0)
    throw UsageError("--bind_core_list {}: expected cores and ranges as in 0-3,8", text);
  return core;
}

}  // namespace

std::vector<int> parse_core_list(const std::string& text, const std::vector<int>& allowed) {
  std::vector<int> cores;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    const size_t dash = part.find('-');
    const int first = parse_core(part.substr(0, dash), text);
    const int last = dash == std::string::npos ? first : parse_core(part.substr(dash + 1), text);
    if (last < first) throw UsageError("--bind_core_list {}: {} runs backwards", text, part);
    for (int core = first; core <= last; ++core) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end())
        throw UsageError("--bind_core_list {}: core {} is not available; available are {}", text,
                         core, fmt::join(allowed, ","));
      if (std::find(cores.begin(), cores.end(), core) != cores.end())
        throw UsageError("--bind_core_list {}: core {} is repeated", text, core);
      cores.push_back(core);
    }
  }
  if (cores.empty()) throw UsageError("--bind_core_list '{}' names no core", text);
  return cores;
}

std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int parts) {
  const int count = static_cast<int>(cores.size());
  std::vector<std::vector<int>> split;
  for (int part = 0, begin = 0; part < parts; ++part) {
    const int size = count < parts ? count : count / parts + (part < count % parts ? 1 : 0);
    split.emplace_back(cores.begin() + begin, cores.begin() + begin + size);
    if (count >= parts) begin += size;
  }
  return split;
}

std::vector<int> allowed_cores() {
  CoreMask mask;
  if (::sched_getaffinity(0, mask.size_bytes(), mask.data()) != 0)
    throw Error("the cores of this process cannot be read: {}", std::strerror(errno));
  std::vector<int> cores;
  for (int core = 0; core < kMaxCores; ++core)
    if (CPU_ISSET_S(core, mask.size_bytes(), mask.data())) cores.push_back(core);
  return cores;
}

int bind_to_cores(const std::vector<int>& cores) {
  CoreMask mask;
  for (int core : cores) CPU_SET_S(core, mask.size_bytes(), mask.data());
  return ::sched_setaffinity(0, mask.size_bytes(), mask.data()) == 0 ? 0 : errno;
}

}  // namespace zeroth::launcher
