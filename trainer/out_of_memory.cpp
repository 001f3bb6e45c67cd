#include "trainer/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/host_limits.h"
#include "base/out_of_memory.h"
#include "base/units.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kKib = 1024;

// "20.00 MiB" or "4096 bytes" behind `mark`, as LibTorch writes sizes.
std::optional<int64_t> size_after(const std::string& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(at + mark.size()));
  double number = 0;
  std::string unit;
  if (!(words >> number >> unit)) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, int>, 4> kUnits = {
      {{"bytes", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  for (const auto& [name, power] : kUnits) {
    if (unit.starts_with(name)) return std::llround(std::ldexp(number, power));
  }
  return std::nullopt;
}

// The value, in bytes, of a line "key: N kB" of a file in /proc.
std::optional<int64_t> line_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == key && file >> kib) return kib * kKib;
    std::getline(file, word);
  }
  return std::nullopt;
}

int64_t within_own_limit() {
  rlimit limit{};
  const auto used = line_of("/proc/self/status", "VmPeak:");
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !used) {
    return kUnlimited;
  }
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - *used);
}

}  // namespace

int64_t free_host_bytes() {
  const char* const own = "/proc/self/status";
  const int64_t given_back =
      line_of(own, "VmHWM:").value_or(0) - line_of(own, "VmRSS:").value_or(0);
  const auto room = host_room();
  const int64_t left = room ? std::max<int64_t>(0, room->bytes - given_back) : kUnlimited;
  return std::min(left, within_own_limit());
}

std::optional<FailedAllocation> failed_allocation(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& gpu) {
    const std::string text = gpu.what_without_backtrace();
    return FailedAllocation{.on_gpu = true,
                            .requested = size_after(text, "Tried to allocate "),
                            .free = size_after(text, "of which ")};
  } catch (const OutOfHostMemory& host) {
    return FailedAllocation{.requested = host.bytes(), .free = free_host_bytes()};
  } catch (const c10::Error& torch) {
    const std::string text = torch.what_without_backtrace();
    if (text.find("DefaultCPUAllocator: ") == std::string::npos) return std::nullopt;
    return FailedAllocation{.requested = size_after(text, "you tried to allocate "),
                            .free = free_host_bytes()};
  } catch (const std::bad_alloc&) {
    return FailedAllocation{.free = free_host_bytes()};
  } catch (...) {
    return std::nullopt;
  }
}

std::string out_of_memory_text(const FailedAllocation& failed, const std::string& doing,
                               const std::vector<std::string>& remedies) {
  const auto bytes = [](const std::optional<int64_t>& size) {
    return size ? fmt::format("{} ({} bytes)", format_bytes(*size), *size) : "an unknown number";
  };
  std::string text =
      fmt::format("out of {} memory{}{}: {} asked for, {} free", failed.on_gpu ? "GPU" : "host",
                  doing.empty() ? "" : " in ", doing, bytes(failed.requested), bytes(failed.free));
  if (!remedies.empty()) {
    text += fmt::format("; what needs less:\n  {}", fmt::join(remedies, "\n  "));
  }
  return text;
}

}  // namespace zeroth::trainer
