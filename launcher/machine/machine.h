// The hardware that this machine offers to the ranks, found without torch or the CUDA runtime.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::launcher {

enum class Accelerator { kCpu, kCuda };

const char* to_string(Accelerator accelerator);  // "cpu", "cuda": the values of DS_ACCELERATOR

struct Machine {
  std::vector<int> cores;         // usable by this process, hardware threads of one core adjacent
  std::vector<std::string> gpus;  // ids as in CUDA_VISIBLE_DEVICES, only visible ones
  std::map<std::string, std::vector<int>> numa_cores = {};  // by GPU id; absent: unknown
};

// Returns a variable of this process; empty if it is not set.
std::optional<std::string> read_variable(const std::string& name);

// LaunchEnvironment holds the variables that say where programs and devices are; unset ones are
// empty.
struct LaunchEnvironment {
  std::optional<std::string> ds_accelerator;
  std::optional<std::string> cuda_visible_devices;
  std::string path;
  std::string library_path = {};  // LD_LIBRARY_PATH

  static LaunchEnvironment from_process();
};

// Probes the machine. Skips GPUs if DS_ACCELERATOR is cpu.
Machine probe_machine(const LaunchEnvironment& environment);

// Returns the ids that CUDA shows out of `count` GPUs under this CUDA_VISIBLE_DEVICES: the list
// ends at its first invalid entry, and an empty one hides all; entries that are not numbers (UUIDs)
// are accepted as they are. Pure.
std::vector<std::string> visible_gpus(int count, const std::optional<std::string>& visible_devices);

// Returns DS_ACCELERATOR if it is set, otherwise CUDA if there are GPUs. Throws Error on another
// value and on cuda without GPUs.
Accelerator resolve_accelerator(const std::optional<std::string>& ds_accelerator,
                                const Machine& machine);

// Returns the time by the clock of ZEROTH_LAUNCH_TIME.
double seconds_since_epoch();

// Throws Error unless DEEPSPEED_TIMEOUT is unset, empty, or a whole number of minutes, at least 1.
// The launcher reports this once, instead of every rank.
void check_timeout(const std::optional<std::string>& deepspeed_timeout);

}  // namespace zeroth::launcher
