#include "engine/memory_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/fitting_config.h"

namespace zeroth::engine {
namespace {

using zero::MemoryPlan;
using zero::PlaceBytes;
using Place = int64_t PlaceBytes::*;

struct Kind {
  const char* name;
  PlaceBytes MemoryPlan::*bytes;
};
constexpr Kind kKinds[] = {{"parameters", &MemoryPlan::parameters},
                           {"gathered", &MemoryPlan::gathered},
                           {"gradients", &MemoryPlan::gradients},
                           {"gradients on their way", &MemoryPlan::gradient_buffers},
                           {"masters", &MemoryPlan::masters},
                           {"optimizer states", &MemoryPlan::states},
                           {"file buffers", &MemoryPlan::file_buffers},
                           {"copies under way", &MemoryPlan::staging},
                           {"kept inputs", &MemoryPlan::kept_inputs},
                           {"copies for checkpoints", &MemoryPlan::saving},
                           {"activations (estimated)", &MemoryPlan::activations},
                           {"LibTorch", &MemoryPlan::runtime},
                           {"CUDA and NCCL", &MemoryPlan::gpu_runtime}};

// The memory of a rank that trains next to nothing (measured: 95 MiB on the CPU, 240 to 260 MiB
// with the pages of its program and libraries, which the ranks of a machine have in common).
constexpr int64_t kRuntimeBytes = int64_t{100} << 20;
constexpr int64_t kCodeBytes = int64_t{160} << 20;

// A context of CUDA 12 on an H100: 534 MiB, measured in pull request 777 of
// meta-pytorch/torchcomms. A communicator of NCCL between more than two A100s with NVLink: 688 MB,
// measured in issue 964 of NVIDIA/nccl; it grows with the channels, of which an H100 has more.
constexpr int64_t kContextBytes = int64_t{534} << 20;
constexpr int64_t kCommunicatorBytes = 688'000'000;

// Of this rank, in a run of the shape: that of all ranks, and those of its axes.
int num_communicators(const comm::GridShape& shape) {
  const int all = shape.ranks();
  if (all == 1) return 0;
  const auto is_part = [&](comm::Axis axis) { return shape[axis] > 1 && shape[axis] < all; };
  return 1 + static_cast<int>(std::count_if(comm::kAllAxes.begin(), comm::kAllAxes.end(), is_part));
}

// "parameters 2.00 GiB, masters 4.00 GiB"; empty where nothing lies there.
std::string kinds_text(const MemoryPlan& memory, const std::vector<Place>& places) {
  const auto at = [&](const PlaceBytes& bytes) {
    int64_t sum = 0;
    for (const Place place : places) sum += bytes.*place;
    return sum;
  };
  std::vector<std::string> parts;
  int64_t training = 0;
  for (const Kind& kind : kKinds) {
    const int64_t bytes = at(memory.*kind.bytes);
    if (bytes > 0) parts.push_back(fmt::format("{} {}", kind.name, format_bytes(bytes)));
    training += bytes;
  }
  MemoryPlan later = memory;
  later.measuring = {};
  if (at(memory.peak()) > at(later.peak())) {
    parts.push_back(
        fmt::format("{} while both ways to update are timed", format_bytes(at(memory.measuring))));
  }
  if (at(later.peak()) > training) {
    parts.push_back(fmt::format("{} while weights are loaded",
                                format_bytes(at(memory.loading) + at(memory.held))));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool on_cpu(const RunMemory& run) {
  return run.options.device == torch::kCPU;
}

std::vector<Place> host_places(const RunMemory& run) {
  if (on_cpu(run)) return {&PlaceBytes::device};
  return {&PlaceBytes::pinned, &PlaceBytes::host};
}

bool knows_activations(const MemoryPlan& memory) {
  return memory.activations.total() > 0;
}

MemoryNeed need_of(const RunMemory& run, const MemoryPlan& memory, const configs::Config& config) {
  MemoryNeed need;
  const PlaceBytes peak = memory.peak();
  for (const Place place : host_places(run)) need.host += peak.*place * run.free.ranks;
  const auto add = [&](const std::string& folder, int64_t bytes) {
    if (bytes == 0) return;
    need.files[folder] += bytes * run.free.ranks;
    const auto disk = run.free.disks.find(folder);
    if (disk != run.free.disks.end() && disk->second.in_memory) {
      need.host += bytes * run.free.ranks;
    }
  };
  add(config.zero.offload_optimizer.nvme_path, memory.masters.file + memory.states.file);
  add(config.zero.offload_param.nvme_path, memory.parameters.file);
  return need;
}

// What folders on one file system need of it together.
struct DiskShare {
  std::vector<std::string> folders;
  int64_t bytes = 0;
  int64_t free = 0;
};

std::map<uint64_t, DiskShare> shares_of_disks(const FreeSpace& left, const MemoryNeed& need) {
  std::map<uint64_t, DiskShare> shares;
  for (const auto& [folder, bytes] : need.files) {
    const auto disk = left.disks.find(folder);
    if (disk == left.disks.end()) continue;
    DiskShare& share = shares[disk->second.device];
    share.folders.push_back(folder);
    share.bytes += bytes;
    share.free = disk->second.free;
  }
  return shares;
}

// Bytes that the machine lacks, and why it does in words; 0 where it can hold the run, as far as is
// known.
struct Lack {
  int64_t bytes = 0;
  std::string why;
};

Lack lack_of(const RunMemory& run, const MemoryNeed& need) {
  const FreeSpace& left = run.free;
  Lack lack;
  const auto add = [&](int64_t bytes, const std::string& why) {
    if (lack.bytes == 0) lack.why = why;
    lack.bytes += bytes;
  };
  if (left.host && need.host > left.host->bytes) {
    add(need.host - left.host->bytes,
        fmt::format("needs {} of host memory on this machine, but {} are left ({})",
                    format_bytes(need.host), format_bytes(left.host->bytes), left.host->limit));
  }
  for (const auto& [device, share] : shares_of_disks(left, need)) {
    if (share.bytes <= share.free) continue;
    add(share.bytes - share.free,
        fmt::format("needs {} ({} bytes) in files in {}, but {} disk has {} free ({} bytes)",
                    format_bytes(share.bytes), share.bytes, fmt::join(share.folders, " and "),
                    share.folders.size() == 1 ? "its" : "their", format_bytes(share.free),
                    share.free));
  }
  return lack;
}

int64_t sum_of(const std::map<std::string, int64_t>& files) {
  int64_t sum = 0;
  for (const auto& [folder, bytes] : files) sum += bytes;
  return sum;
}

// A configuration that does not work with the model needs more than there is.
std::optional<MemoryNeed> need_after(const RunMemory& run, const configs::Config& config) {
  try {
    return need_of(run, run.reckon(config, run.options), config);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Of `value`, those below `most`; the largest first.
std::vector<int64_t> factors_below(int64_t value, int64_t most) {
  std::vector<int64_t> factors;
  for (int64_t factor = 1; factor <= value / factor; ++factor) {
    if (value % factor != 0) continue;
    for (const int64_t each : {factor, value / factor}) {
      if (each < most) factors.push_back(each);
    }
  }
  std::sort(factors.begin(), factors.end(), std::greater<>());
  return factors;
}

// The largest micro-batch below the run's with which it fits, at the same global batch.
std::optional<std::string> smaller_micro_batch(const RunMemory& run) {
  const configs::BatchConfig& batch = run.config.batch;
  if (!knows_activations(run.memory) || !run.options.trains) return std::nullopt;
  const int64_t samples = batch.micro_batch_size * batch.accumulation_steps;
  for (const int64_t size : factors_below(samples, batch.micro_batch_size)) {
    configs::Config config = run.config;
    config.batch.micro_batch_size = size;
    config.batch.accumulation_steps = samples / size;
    const auto need = need_after(run, config);
    if (!need || lack_of(run, *need).bytes > 0) continue;
    return fmt::format("--micro-batch {} with --accumulation {}: {} of host memory{}", size,
                       samples / size, format_bytes(need->host), json_to_paste(run.config, config));
  }
  return std::nullopt;
}

std::string what_fits(const RunMemory& run) {
  if (const auto smaller = smaller_micro_batch(run)) return "this would fit:\n  " + *smaller;
  const MemoryFacts facts{
      .world_size = run.options.shape[comm::Axis::kData],
      .trains = run.options.trains,
      .lacks = on_cpu(run) ? MemoryFacts::Lacks::kShared : MemoryFacts::Lacks::kHost,
      .activations = knows_activations(run.memory) && on_cpu(run)};
  const auto lacks = [&](const configs::Config& config) {
    const auto need = need_after(run, config);
    return need ? lack_of(run, *need).bytes : kDoesNotWork;
  };
  const FittingConfig found = fit_memory(run.config, facts, lacks);
  const auto need = need_after(run, found.config);
  if (found.changes.empty() || !need) {
    const bool disk = !memory_need(run).files.empty();
    return fmt::format("a smaller model would fit, or more memory{}",
                       disk ? ", or a nvme_path on a larger disk" : "");
  }
  std::string text = fmt::format("{}: {} of host memory", fmt::join(found.changes, " and "),
                                 format_bytes(need->host));
  if (const int64_t files = sum_of(need->files); files > 0) {
    text += fmt::format(" and {} in files at nvme_path", format_bytes(files));
  }
  text += json_to_paste(run.config, found.config);
  if (lack_of(run, *need).bytes == 0) return "this would fit:\n  " + text;
  return "it does not fit with all sharding and offload either; what takes least is\n  " + text;
}

// Bytes in host memory.
int64_t held_bytes(const model::Blocks& blocks) {
  std::set<const void*> seen;  // a tied weight counts once
  int64_t bytes = 0;
  for (const auto& block : blocks) {
    for (const torch::Tensor& parameter : block->parameters()) {
      const bool is_new = seen.insert(parameter.unsafeGetTensorImpl()).second;
      if (is_new && parameter.is_cpu()) bytes += static_cast<int64_t>(parameter.nbytes());
    }
  }
  return bytes;
}

// How much of kRuntimeBytes this process, and so each rank, uses already: it is not free memory of
// the machine. Code is page cache, which counts as free.
int64_t runtime_in_use(const std::filesystem::path& root, int64_t held) {
  const auto kib = read_counter(root / "proc/self/status", "RssAnon:");
  return std::clamp<int64_t>(kib.value_or(0) * 1024 - held, 0, kRuntimeBytes);
}

}  // namespace

RunMemory run_memory(const model::Blocks& blocks, const configs::Config& config,
                     const OutlineOptions& options, int here, const std::filesystem::path& root) {
  const int64_t held = held_bytes(blocks);
  const auto reckon = [=](const configs::Config& other, const OutlineOptions& with) {
    const auto plan = plan_of(blocks, with);
    MemoryPlan memory = plan_memory(plan, other, with);
    const Place host = with.device == torch::kCPU ? &PlaceBytes::device : &PlaceBytes::host;
    memory.held.*host = held;
    memory.runtime.*host = kRuntimeBytes + kCodeBytes / here;
    if (with.device == torch::kCUDA) {
      memory.gpu_runtime.device =
          kContextBytes + num_communicators(with.shape) * kCommunicatorBytes;
    }
    return memory;
  };
  RunMemory run{config, options, reckon(config, options), {}, reckon};
  run.free = free_space(config.zero, run.memory, here, root);
  if (const int64_t own = (held + runtime_in_use(root, held)) * here; run.free.host && own > 0) {
    run.free.host->bytes += own;
    run.free.host->limit +=
        fmt::format("; {} that ranks hold now count as left", format_bytes(own));
  }
  return run;
}

RunMemory with_activations(RunMemory run, const MicroBatchSize& micro_batch) {
  run.options.micro_batch = micro_batch;
  run.memory = run.reckon(run.config, run.options);
  return run;
}

MemoryNeed memory_need(const RunMemory& run) {
  return need_of(run, run.memory, run.config);
}

void require_memory(const RunMemory& run) {
  const Lack lack = lack_of(run, memory_need(run));
  if (lack.bytes == 0) return;
  std::vector<std::string> parts = {kinds_text(run.memory, host_places(run))};
  const std::string files = kinds_text(run.memory, {&PlaceBytes::file});
  if (!files.empty()) parts.push_back("in files " + files);
  throw Error("the run {}; {} with {} each{}; {}", lack.why, counted(run.free.ranks, "rank"),
              fmt::join(parts, "; "),
              knows_activations(run.memory) ? "" : ", activations not counted", what_fits(run));
}

std::vector<std::string> memory_lines(const RunMemory& run) {
  struct Row {
    const char* name;
    Place place;
  };
  const Row rows[] = {{on_cpu(run) ? "memory" : "GPU memory", &PlaceBytes::device},
                      {"pinned host memory", &PlaceBytes::pinned},
                      {"host memory", &PlaceBytes::host},
                      {"files", &PlaceBytes::file}};
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    const std::string kinds = kinds_text(run.memory, {row.place});
    if (!kinds.empty()) lines.push_back(fmt::format("each rank, {}: {}", row.name, kinds));
  }
  const MemoryNeed need = memory_need(run);
  std::string all = fmt::format("{}: {} of host memory", counted(run.free.ranks, "rank"),
                                format_bytes(need.host));
  if (run.free.host) all += fmt::format(" of {} left", format_bytes(run.free.host->bytes));
  for (const auto& [folder, bytes] : need.files) {
    all += fmt::format(", {} in {}", format_bytes(bytes), folder);
    const auto disk = run.free.disks.find(folder);
    if (disk != run.free.disks.end())
      all += fmt::format(" of {} free", format_bytes(disk->second.free));
  }
  lines.push_back(all + (knows_activations(run.memory) ? "" : "; activations come on top"));
  return lines;
}

int64_t connected_gpu_bytes(const comm::GridShape& shape) {
  return kContextBytes + std::min(num_communicators(shape), 1) * kCommunicatorBytes;
}

std::optional<std::string> gpu_warning(const zero::MemoryPlan& memory, int64_t free) {
  const int64_t need = memory.peak().device;
  if (need <= free) return std::nullopt;
  return fmt::format(
      "the run needs {} on each GPU, {}, but {} are free", format_bytes(need),
      knows_activations(memory) ? "estimated activations included" : "activations not counted",
      format_bytes(free));
}

}  // namespace zeroth::engine
