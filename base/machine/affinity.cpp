#include "base/machine/affinity.h"

#include <sched.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

constexpr int kMaxCores = 8192;  // the kernel's own limit on x86-64

// A CoreMask has as many cpu_set_t as kMaxCores bits need; a single one ends at 1024.
struct CoreMask {
  std::array<cpu_set_t, kMaxCores / CPU_SETSIZE> sets{};

  cpu_set_t* data() { return sets.data(); }
  size_t size_bytes() const { return sizeof(sets); }
};

}  // namespace

std::vector<int> allowed_cores() {
  CoreMask mask;
  if (::sched_getaffinity(0, mask.size_bytes(), mask.data()) != 0) {
    throw Error("cannot read the CPU affinity of this process: {}", system_reason(errno));
  }
  std::vector<int> cores;
  for (int core = 0; core < kMaxCores; ++core)
    if (CPU_ISSET_S(core, mask.size_bytes(), mask.data())) cores.push_back(core);
  return cores;
}

int set_affinity(const std::vector<int>& cores) {
  CoreMask mask;
  for (int core : cores) CPU_SET_S(core, mask.size_bytes(), mask.data());
  return ::sched_setaffinity(0, mask.size_bytes(), mask.data()) == 0 ? 0 : errno;
}

}  // namespace zeroth
