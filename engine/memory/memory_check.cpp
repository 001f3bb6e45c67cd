#include "engine/memory/memory_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/machine/cgroup.h"
#include "base/text/units.h"
#include "engine/memory/memory_remedies.h"

namespace zeroth::engine {
namespace {

using zero::MemoryPlan;
using zero::TierBytes;
using TierField = int64_t TierBytes::*;

constexpr std::pair<const char*, TierBytes MemoryPlan::*> kKinds[] = {
    {"parameters", &MemoryPlan::parameters},
    {"gathered", &MemoryPlan::gathered},
    {"gradients", &MemoryPlan::gradients},
    {"gradients in flight", &MemoryPlan::gradient_buffers},
    {"masters", &MemoryPlan::masters},
    {"optimizer states", &MemoryPlan::states},
    {"file buffers", &MemoryPlan::file_buffers},
    {"staging copies", &MemoryPlan::staging},
    {"kept inputs", &MemoryPlan::saved_inputs},
    {"copies for checkpoints", &MemoryPlan::saving},
    {"activations (estimated)", &MemoryPlan::activations},
    {"LibTorch", &MemoryPlan::runtime},
    {"CUDA and NCCL", &MemoryPlan::gpu_runtime}};

// Memory of a rank that trains almost nothing (measured: 95 MiB on the CPU, 240 to 260 MiB with the
// pages of its program and libraries, which the ranks of a node share).
constexpr int64_t kRuntimeBytes = int64_t{100} << 20;
constexpr int64_t kCodeBytes = int64_t{160} << 20;

// Memory of a CUDA 12 context on an H100: 534 MiB, measured in pull request 777 of
// meta-pytorch/torchcomms. Memory of an NCCL communicator between more than two A100s with NVLink:
// 688 MB, measured in issue 964 of NVIDIA/nccl; it grows with the channels, of which an H100 has
// more.
constexpr int64_t kContextBytes = int64_t{534} << 20;
constexpr int64_t kCommunicatorBytes = 688'000'000;

// Returns the number of this rank's communicators: that of all ranks, those of mesh dims, and those
// to and from its neighbors in a pipeline, of activations and of gradients.
int num_communicators(const comm::MeshShape& shape) {
  const int all = shape.ranks();
  if (all == 1) return 0;
  const auto is_part = [&](comm::MeshDim axis) { return shape[axis] > 1 && shape[axis] < all; };
  const int neighbors = shape[comm::MeshDim::kPp] > 1 ? 4 : 0;
  return 1 + neighbors +
         static_cast<int>(
             std::count_if(comm::kAllMeshDims.begin(), comm::kAllMeshDims.end(), is_part));
}

// Returns "parameters 2.00 GiB, masters 4.00 GiB"; empty if there are no bytes.
std::string describe_kinds(const MemoryPlan& memory, const std::vector<TierField>& fields) {
  const auto at = [&](const TierBytes& bytes) {
    int64_t sum = 0;
    for (const TierField field : fields) sum += bytes.*field;
    return sum;
  };
  std::vector<std::string> parts;
  int64_t training = 0;
  for (const auto& [name, kind] : kKinds) {
    const int64_t bytes = at(memory.*kind);
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
    training += bytes;
  }
  MemoryPlan later = memory;
  later.measuring = {};
  if (at(memory.peak()) > at(later.peak())) {
    parts.push_back(fmt::format("{} while both optimizer devices are timed",
                                format_bytes(at(memory.measuring))));
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

std::vector<TierField> host_fields(const RunMemory& run) {
  if (on_cpu(run)) return {&TierBytes::device};
  return {&TierBytes::pinned, &TierBytes::host};
}

bool has_activations(const MemoryPlan& memory) {
  return memory.activations.total() > 0;
}

// Adds the need of `count` ranks that have this memory.
void add_need(const RunMemory& run, const MemoryPlan& memory, const configs::Config& config,
              int64_t count, MemoryNeed& need) {
  const TierBytes peak = memory.peak();
  for (const TierField field : host_fields(run)) need.host += peak.*field * count;
  for (const auto& [section, directory, bytes] : file_needs(config.zero, memory)) {
    if (bytes == 0) continue;
    need.files[directory] += bytes * count;
    const auto disk = run.free.disks.find(directory);
    if (disk != run.free.disks.end() && disk->second.in_memory) need.host += bytes * count;
  }
}

// Returns the need of the node whose ranks need most: in a pipeline they hold different blocks.
// `memory` is that of the rank that needs most.
MemoryNeed compute_need(const RunMemory& run, const MemoryPlan& memory,
                        const configs::Config& config) {
  const int64_t here = run.free.ranks, pp_ranks = config.pipeline.stages;
  MemoryNeed max_need;
  if (pp_ranks == 1) {
    add_need(run, memory, config, here, max_need);
    return max_need;
  }
  std::vector<MemoryPlan> of_pp_rank;
  EstimateOptions options = run.options;
  for (int pp_rank = 0; pp_rank < pp_ranks; ++pp_rank) {
    options.pp_rank = pp_rank;
    of_pp_rank.push_back(run.estimate(config, options));
  }
  const int64_t world = run.options.shape.ranks(), each = world / pp_ranks;
  for (int64_t first = 0; first < world; first += here) {
    MemoryNeed need;
    for (int64_t pp_rank = 0; pp_rank < pp_ranks; ++pp_rank) {
      const int64_t begin = std::max(first, pp_rank * each);
      const int64_t end = std::min({first + here, (pp_rank + 1) * each, world});
      if (begin < end)
        add_need(run, of_pp_rank[static_cast<size_t>(pp_rank)], config, end - begin, need);
    }
    if (need.host >= max_need.host) max_need = need;
  }
  return max_need;
}

// Shortfall is the bytes that the node is missing, and the reason as text; 0 if it can hold the
// run, as far as is known.
struct Shortfall {
  int64_t bytes = 0;
  std::string why;
};

Shortfall shortfall_of(const RunMemory& run, const MemoryNeed& need) {
  const FreeSpace& left = run.free;
  Shortfall shortfall;
  const auto add = [&](int64_t bytes, const std::string& why) {
    if (shortfall.bytes == 0) shortfall.why = why;
    shortfall.bytes += bytes;
  };
  if (left.host && need.host > left.host->bytes) {
    add(need.host - left.host->bytes,
        fmt::format("needs {} of host memory on this machine, but {} are left ({})",
                    format_bytes(need.host), format_bytes(left.host->bytes), left.host->limit));
  }
  struct DiskNeed {
    std::vector<std::string> directories;
    int64_t bytes = 0;
    int64_t free = 0;
  };
  std::map<uint64_t, DiskNeed> disk_needs;  // of the directories on each file system together
  for (const auto& [directory, bytes] : need.files) {
    const auto disk = left.disks.find(directory);
    if (disk == left.disks.end()) continue;
    DiskNeed& disk_need = disk_needs[disk->second.device];
    disk_need.directories.push_back(directory);
    disk_need.bytes += bytes;
    disk_need.free = disk->second.free;
  }
  for (const auto& [device, disk_need] : disk_needs) {
    if (disk_need.bytes <= disk_need.free) continue;
    add(disk_need.bytes - disk_need.free,
        fmt::format("needs {} ({} bytes) in files in {}, but {} disk has {} free ({} bytes)",
                    format_bytes(disk_need.bytes), disk_need.bytes,
                    fmt::join(disk_need.directories, " and "),
                    disk_need.directories.size() == 1 ? "its" : "their",
                    format_bytes(disk_need.free), disk_need.free));
  }
  return shortfall;
}

// Returns nullopt for a configuration that does not work with the model.
std::optional<MemoryNeed> need_with(const RunMemory& run, const configs::Config& config) {
  try {
    return compute_need(run, run.estimate(config, run.options), config);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns a suggestion for the largest micro-batch below the run's that fits, with the same global
// batch.
std::optional<std::string> smaller_micro_batch(const RunMemory& run) {
  if (!has_activations(run.memory) || !run.options.trains) return std::nullopt;
  for (const MemoryChange& change : smaller_micro_batches(run.config)) {
    configs::Config config = run.config;
    change.apply(config);
    const auto need = need_with(run, config);
    if (!need || shortfall_of(run, *need).bytes > 0) continue;
    return fmt::format("{}: {} of host memory{}", change.text, format_bytes(need->host),
                       json_to_paste(run.config, config));
  }
  return std::nullopt;
}

std::string suggest_fit(const RunMemory& run) {
  if (const auto smaller = smaller_micro_batch(run)) return "this would fit:\n  " + *smaller;
  const MemoryFacts facts{
      .world_size = run.options.shape[comm::MeshDim::kDp],
      .trains = run.options.trains,
      .shortage = on_cpu(run) ? MemoryFacts::Shortage::kShared : MemoryFacts::Shortage::kHost,
      .activations = has_activations(run.memory) && on_cpu(run)};
  const auto shortfall = [&](const configs::Config& config) {
    const auto need = need_with(run, config);
    return need ? shortfall_of(run, *need).bytes : kInvalidConfig;
  };
  const FittingConfig found = fit_memory(run.config, facts, shortfall);
  const auto need = need_with(run, found.config);
  if (found.changes.empty() || !need) {
    const bool disk = !memory_need(run).files.empty();
    return fmt::format("a smaller model would fit, or more memory{}",
                       disk ? ", or a nvme_path on a larger disk" : "");
  }
  std::string text = fmt::format("{}: {} of host memory", fmt::join(found.changes, " and "),
                                 format_bytes(need->host));
  int64_t files = 0;
  for (const auto& [directory, bytes] : need->files) files += bytes;
  if (files > 0) {
    text += fmt::format(" and {} in files at nvme_path", format_bytes(files));
  }
  text += json_to_paste(run.config, found.config);
  if (shortfall_of(run, *need).bytes == 0) return "this would fit:\n  " + text;
  return "it does not fit even with full sharding and offload; the smallest need is\n  " + text;
}

// Returns the end of a message: what adapters need of a kind of memory, which `bytes` returns.
std::string suggest_adapters(const RunMemory& run, std::string_view kind,
                             const std::function<int64_t(const MemoryPlan&)>& bytes) {
  if (!run.with_adapters || !run.options.trains) return "";
  std::vector<std::string> lines;
  for (const auto& [flags, memory] : run.with_adapters(run.options))
    lines.push_back(fmt::format("\n    {}: {} of {}", flags, format_bytes(bytes(memory)), kind));
  if (lines.empty()) return "";
  return fmt::format("\n  adapters over a frozen model would need{}:{}",
                     has_activations(run.memory) ? "" : ", without activations",
                     fmt::join(lines, ""));
}

// Returns the parameters' bytes in CPU memory.
int64_t parameter_bytes(const model::Blocks& blocks) {
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

// Returns how much of kRuntimeBytes this process, and so each rank, uses already, which is not in
// the node's free memory. Code is page cache, which counts as free.
int64_t runtime_in_use(const std::filesystem::path& root, int64_t held) {
  const auto kib = read_counter(root / "proc/self/status", "RssAnon:");
  return std::clamp<int64_t>(kib.value_or(0) * 1024 - held, 0, kRuntimeBytes);
}

// Returns the memory of the rank at options.pp_rank; unset: of the one that needs most.
MemoryPlan rank_memory(const model::Blocks& blocks, const configs::Config& config,
                       EstimateOptions options) {
  const PipelinePartition partition =
      partition_blocks(blocks, config.pipeline, options.block_times);
  const auto at_rank = [&](int pp_rank) {
    options.pp_rank = pp_rank;
    return plan_memory(plan_of(blocks, config, options), config, options, partition);
  };
  if (options.pp_rank) return at_rank(*options.pp_rank);
  const auto bytes = [&](const MemoryPlan& memory) {
    return options.device == torch::kCPU ? memory.peak().total() : memory.peak().device;
  };
  MemoryPlan largest = at_rank(0);
  for (int pp_rank = 1; pp_rank < partition.ranks; ++pp_rank) {
    const MemoryPlan memory = at_rank(pp_rank);
    if (bytes(memory) > bytes(largest)) largest = memory;
  }
  return largest;
}

}  // namespace

RunMemory run_memory(const model::Blocks& blocks, const configs::Config& config,
                     const EstimateOptions& options, int here, const std::filesystem::path& root) {
  const int64_t held = parameter_bytes(blocks);
  const auto estimate = [=](const configs::Config& other, const EstimateOptions& with) {
    MemoryPlan memory = rank_memory(blocks, other, with);
    const TierField host = with.device == torch::kCPU ? &TierBytes::device : &TierBytes::host;
    memory.held.*host = held;
    memory.runtime.*host = kRuntimeBytes + kCodeBytes / here;
    if (with.device == torch::kCUDA) {
      memory.gpu_runtime.device =
          kContextBytes + num_communicators(with.shape) * kCommunicatorBytes;
    }
    return memory;
  };
  RunMemory run{config, options, estimate(config, options), {}, estimate};
  run.free = free_space(config.zero, run.memory, here, root);
  if (const int64_t own = (held + runtime_in_use(root, held)) * here; run.free.host && own > 0) {
    run.free.host->bytes += own;
    run.free.host->limit +=
        fmt::format("; {} that ranks already hold count as left", format_bytes(own));
  }
  return run;
}

RunMemory with_activations(RunMemory run, const MicroBatchSize& micro_batch) {
  run.options.micro_batch = micro_batch;
  run.options.block_times = micro_batch.block_times;
  run.memory = run.estimate(run.config, run.options);
  return run;
}

MemoryNeed memory_need(const RunMemory& run) {
  return compute_need(run, run.memory, run.config);
}

void require_memory(const RunMemory& run) {
  const Shortfall shortfall = shortfall_of(run, memory_need(run));
  if (shortfall.bytes == 0) return;
  std::vector<std::string> parts = {describe_kinds(run.memory, host_fields(run))};
  const std::string files = describe_kinds(run.memory, {&TierBytes::file});
  if (!files.empty()) parts.push_back("in files " + files);
  throw Error(
      "the run {}; {} with {} each{}; {}", shortfall.why, pluralize(run.free.ranks, "rank"),
      fmt::join(parts, "; "), has_activations(run.memory) ? "" : ", activations not counted",
      suggest_fit(run) + suggest_adapters(run, "host memory", [&](const MemoryPlan& memory) {
        return compute_need(run, memory, run.config).host;
      }));
}

std::vector<std::string> memory_lines(const RunMemory& run) {
  const std::pair<const char*, TierField> rows[] = {
      {on_cpu(run) ? "memory" : "GPU memory", &TierBytes::device},
      {"pinned host memory", &TierBytes::pinned},
      {"host memory", &TierBytes::host},
      {"files", &TierBytes::file}};
  std::vector<std::string> lines;
  for (const auto& [name, field] : rows) {
    const std::string kinds = describe_kinds(run.memory, {field});
    if (!kinds.empty()) lines.push_back(fmt::format("each rank, {}: {}", name, kinds));
  }
  const MemoryNeed need = memory_need(run);
  std::string all = fmt::format("{}: {} of host memory", pluralize(run.free.ranks, "rank"),
                                format_bytes(need.host));
  if (run.free.host) all += fmt::format(" of {} left", format_bytes(run.free.host->bytes));
  for (const auto& [directory, bytes] : need.files) {
    all += fmt::format(", {} in {}", format_bytes(bytes), directory);
    const auto disk = run.free.disks.find(directory);
    if (disk != run.free.disks.end())
      all += fmt::format(" of {} free", format_bytes(disk->second.free));
  }
  lines.push_back(all + (has_activations(run.memory) ? "" : "; activations not counted"));
  return lines;
}

int64_t connected_gpu_bytes(const comm::MeshShape& shape) {
  return kContextBytes + std::min(num_communicators(shape), 1) * kCommunicatorBytes;
}

std::optional<std::string> gpu_warning(const RunMemory& run, int64_t free) {
  const int64_t need = run.memory.peak().device;
  if (need <= free) return std::nullopt;
  return fmt::format(
      "the run needs {} on each GPU, {}, but {} are free{}", format_bytes(need),
      has_activations(run.memory) ? "estimated activations included" : "activations not counted",
      format_bytes(free), suggest_adapters(run, "GPU memory", [](const MemoryPlan& memory) {
        return memory.peak().device;
      }));
}

}  // namespace zeroth::engine
