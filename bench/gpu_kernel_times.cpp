// Device time by kernel of any CUDA program, without changing it: the driver loads this library
// when CUDA_INJECTION64_PATH names it. At exit the table goes to the file that ZEROTH_KERNEL_TIMES
// names (or stderr): milliseconds, calls and name of each kernel and copy, longest first, and how
// long the device was busy between its first and its last activity.
#include <cupti.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

struct KernelTotal {
  double milliseconds = 0;
  int64_t calls = 0;
};

struct KernelTimes {
  std::mutex mutex;
  std::map<std::string, KernelTotal> by_name;
  std::vector<std::pair<uint64_t, uint64_t>> intervals;  // ns
};

KernelTimes& times() {
  static auto* const all = new KernelTimes;  // outlives the atexit handlers
  return *all;
}

void add(const std::string& name, uint64_t start, uint64_t end) {
  KernelTotal& total = times().by_name[name];
  total.milliseconds += static_cast<double>(end - start) * 1e-6;
  total.calls += 1;
  if (start > 0) times().intervals.emplace_back(start, end);  // 0: it was not timed
}

void add(CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<CUpti_ActivityKernel9*>(record);
    add(kernel->name, kernel->start, kernel->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<CUpti_ActivityMemcpy5*>(record);
    add(fmt::format("copy, kind {}", static_cast<int>(copy->copyKind)), copy->start, copy->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* set = reinterpret_cast<CUpti_ActivityMemset4*>(record);
    add("memset", set->start, set->end);
  }
}

void CUPTIAPI allocate_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = 8 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *max_records = 0;
}

void CUPTIAPI process_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(times().mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) add(record);
  std::free(buffer);
}

// Seconds in which at least one activity ran, of those from the first to the last.
std::pair<double, double> busy_seconds() {
  auto& intervals = times().intervals;
  std::sort(intervals.begin(), intervals.end());
  uint64_t covered = 0, until = 0;
  for (const auto& [start, end] : intervals) {
    if (end <= until) continue;
    covered += end - std::max(start, until);
    until = end;
  }
  const uint64_t first = intervals.empty() ? 0 : intervals.front().first;
  return {static_cast<double>(covered) * 1e-9, static_cast<double>(until - first) * 1e-9};
}

void print_table() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(times().mutex);
  std::vector<std::pair<std::string, KernelTotal>> rows(times().by_name.begin(),
                                                        times().by_name.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.milliseconds > b.second.milliseconds;
  });
  const char* path = std::getenv("ZEROTH_KERNEL_TIMES");
  std::FILE* out = path != nullptr ? std::fopen(path, "w") : stderr;
  if (out == nullptr) return;
  const auto [covered, span_seconds] = busy_seconds();
  fmt::print(out, "busy {:.3f} of {:.3f} s\n", covered, span_seconds);
  for (const auto& [name, total] : rows)
    fmt::print(out, "{:10.3f} ms {:7} calls  {}\n", total.milliseconds, total.calls, name);
  std::fflush(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(allocate_buffer, process_buffer);
  for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                          CUPTI_ACTIVITY_KIND_MEMSET}) {
    cuptiActivityEnable(kind);
  }
  // Programs that do not run the destructors of their globals leave by quick_exit().
  std::atexit(print_table);
  std::at_quick_exit(print_table);
  return 1;
}
