// What this machine offers to the ranks, found without torch or the CUDA runtime.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zeroth::launcher {

enum class Accelerator { kCpu, kCuda };

const char* to_string(Accelerator accelerator);  // "cpu", "cuda": the values of DS_ACCELERATOR

struct Machine {
  std::vector<int> cores;  // those this process may use, hardware threads of one core side by side
  std::vector<std::string> gpus;  // ids as in CUDA_VISIBLE_DEVICES, only visible ones
  std::map<std::string, std::vector<int>> numa_cores = {};  // to a GPU; absent: not known
};

// The launcher's own view of its environment; unset variables are empty optionals.
struct LaunchEnvironment {
  std::optional<std::string> ds_accelerator;
  std::optional<std::string> cuda_visible_devices;
  std::optional<std::string> omp_num_threads;
  std::string path;
  std::optional<std::string> deepspeed_timeout = {};
  std::optional<std::string> nccl_socket_ifname = {};
  bool has_secret = false;        // of the run, which goes through to the ranks
  std::string library_path = {};  // LD_LIBRARY_PATH

  static LaunchEnvironment from_process();
};

// GPUs are not looked for when DS_ACCELERATOR says cpu.
Machine probe_machine(const LaunchEnvironment& environment);

// The ids that CUDA would show out of `count` GPUs under this CUDA_VISIBLE_DEVICES: the list ends
// at its first invalid entry, an empty one hides all; entries that are not numbers (UUIDs) are
// taken as they are. Pure.
std::vector<std::string> visible_gpus(int count, const std::optional<std::string>& visible_devices);

// DS_ACCELERATOR where it is set, else CUDA where there are GPUs. Throws Error on another value and
// on cuda without GPUs.
Accelerator resolve_accelerator(const std::optional<std::string>& ds_accelerator,
                                const Machine& machine);

// The clock of ZEROTH_LAUNCH_TIME.
double seconds_since_epoch();

// Throws Error unless DEEPSPEED_TIMEOUT is unset, empty or a whole number of minutes, at least 1:
// said once here rather than by every rank.
void check_timeout(const std::optional<std::string>& deepspeed_timeout);

}  // namespace zeroth::launcher
