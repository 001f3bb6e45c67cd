#include <filesystem>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/json/json.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

// An AutoFormula is Hugging Face's formula for an "auto", of the model's hidden size.
struct AutoFormula {
  double factor;
  bool squared;
  const char* text;
};

constexpr AutoFormula kReduceBucket = {1, true, "hidden size squared"};
constexpr AutoFormula kPrefetchBucket = {0.9, true, "0.9 * hidden size squared"};
constexpr AutoFormula kPersistence = {10, false, "10 * hidden size"};

void read_size(Context& context, const std::string& path, const AutoFormula& formula,
               int64_t& into) {
  if (!context.keys.is_auto(path)) {
    context.read(path, into);
    return;
  }
  const auto hidden = static_cast<double>(context.facts.hidden_size);
  context.origins[path] = formula.text;
  if (hidden > 0) {
    into = static_cast<int64_t>(formula.factor * hidden * (formula.squared ? hidden : 1));
  } else if (context.facts_known) {
    context.add_error("{}: \"auto\" needs the model's hidden size: give a number", path);
  }
}

// Reads a size. Hugging Face resolves "auto" at stage 3 only; DeepSpeed uses its default otherwise.
void read_stage3_size(Context& context, const std::string& path, const AutoFormula& formula,
                      const ZeroConfig& zero, int64_t& into) {
  if (zero.stage == 3) return read_size(context, path, formula, into);
  context.read(path, into);
  if (context.keys.is_auto(path)) context.origins[path] = "the default";
}

namespace fs = std::filesystem;

OffloadDevice parse_offload_device(const std::optional<std::string>& name) {
  if (name == "cpu") return OffloadDevice::kCpu;
  return name == "nvme" ? OffloadDevice::kNvme : OffloadDevice::kNone;
}

// Returns an absolute path without links. Returns an empty text if the path is relative and the
// working directory was removed. Throws an Error if the path is inaccessible or leads through a
// link of another user.
std::string absolute(const std::string& given) {
  std::error_code failed;
  const fs::path absolute_path = fs::absolute(given, failed);
  return failed ? "" : resolve_links(absolute_path).string();
}

void check_nvme_directory(Context& context, const std::string& path, const std::string& given,
                          const std::string& directory) {
  std::error_code ignored;
  if (directory.empty()) {
    context.add_error("{}: {} is relative, and the working folder is gone", path, given);
  } else if (!fs::exists(directory, ignored)) {
    note(context.notes, path, "{}: {} does not exist and will be created", path, directory);
  } else if (!fs::is_directory(directory, ignored)) {
    context.add_error("{}: {} is a file, expected a folder", path, directory);
  } else if (!fs::path(given).is_absolute()) {
    note(context.notes, path, "{}: {} is {}", path, given, directory);
  }
}

// Returns an absolute path, so that it is the same directory whatever a rank's working directory
// is.
std::string read_nvme_directory(Context& context, const std::string& section,
                                OffloadDevice device) {
  const std::string path = section + ".nvme_path";
  const auto& values = context.keys.values;
  const auto found = values.find(path);
  const std::string given = context.keys.get<std::string>(path).value_or("");
  const bool used = device == OffloadDevice::kNvme && !context.keys.is_bad(path);
  if (given.empty()) {
    if (used) {
      context.add_error("{}.device: \"nvme\" needs {}, a folder on the disk to be used, found {}",
                        section, path, found == values.end() ? "null" : quoted(found->second));
    }
    return {};
  }
  try {
    const std::string directory = absolute(given);
    if (used) check_nvme_directory(context, path, given, directory);
    return directory;
  } catch (const Error& error) {
    if (used) context.add_error("{}: {}", path, error.what());
    return {};
  }
}

// Reads the keys that both sections have.
template <typename Section>
void read_section(Context& context, const std::string& path, Section& section) {
  section.device = parse_offload_device(context.keys.get<std::string>(path + ".device"));
  section.nvme_path = read_nvme_directory(context, path, section.device);
  context.read(path + ".pin_memory", section.pin_memory);
  context.read(path + ".buffer_count", section.buffer_count);
}

void fill_offload_param(Context& context, ZeroConfig& zero) {
  const std::string path = "zero_optimization.offload_param";
  if (ignores_offload_param(context, zero)) {
    const std::string device = context.keys.get<std::string>(path + ".device").value_or("none");
    if (device == "none") return;
    warn(context.notes, path,
         "{}.device \"{}\" has no effect, as in DeepSpeed: it needs zero_optimization.stage 3, "
         "found {}",
         path, device, zero.stage);
    return;
  }
  OffloadParamConfig& param = zero.offload_param;
  read_section(context, path, param);
  context.read(path + ".buffer_size", param.buffer_size_elements);
  context.read(path + ".max_in_cpu", param.max_in_cpu_elements);
}

}  // namespace

bool ignores_offload_param(const Context& context, const ZeroConfig& zero) {
  return zero.stage != 3 && !context.keys.is_bad("zero_optimization.stage");
}

void fill_zero(Context& context, Config& config) {
  ZeroConfig& zero = config.zero;
  const auto read = [&](const char* name, auto& into) {
    context.read(fmt::format("zero_optimization.{}", name), into);
  };
  read("stage", zero.stage);
  read("overlap_comm", zero.overlap_comm);
  read("overlap_step", zero.overlap_step);
  read("reduce_scatter", zero.reduce_scatter);
  read("ignore_unused_parameters", zero.ignore_unused_parameters);
  read("allgather_bucket_size", zero.allgather_bucket_elements);
  read("sub_group_size", zero.sub_group_size_elements);
  if (zero.sub_group_size_elements == 0) {
    zero.sub_group_size_elements = ZeroConfig().sub_group_size_elements;
  }
  read("stage3_max_live_parameters", zero.max_live_elements);
  read("zero_hpz_partition_size", zero.hpz_partition_size);
  zero.hpz_partition_size = std::max<int64_t>(1, zero.hpz_partition_size);
  read("stage3_gather_16bit_weights_on_model_save", zero.gather_16bit_weights_on_model_save);
  read_size(context, "zero_optimization.reduce_bucket_size", kReduceBucket,
            zero.reduce_bucket_elements);
  read_stage3_size(context, "zero_optimization.stage3_prefetch_bucket_size", kPrefetchBucket, zero,
                   zero.prefetch_bucket_elements);
  read_stage3_size(context, "zero_optimization.stage3_param_persistence_threshold", kPersistence,
                   zero, zero.param_persistence_threshold_elements);
}

void fill_recompute(Context& context, Config& config) {
  const std::string path = "activation_checkpointing.number_checkpoints";
  RecomputeConfig& recompute = config.recompute;
  recompute.number_checkpoints = context.keys.get<int64_t>(path).value_or(0);
  context.read("activation_checkpointing.cpu_checkpointing", recompute.cpu_checkpointing);
  recompute.every_nth_block = context.flags.gradient_checkpointing.value_or(0);
}

const char* to_string(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::kCpu:
      return "cpu";
    case OffloadDevice::kNvme:
      return "nvme";
    case OffloadDevice::kNone:
      break;
  }
  return "none";
}

void fill_offload(Context& context, Config& config) {
  OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  read_section(context, "zero_optimization.offload_optimizer", optimizer);
  context.read("zero_optimization.offload_optimizer.pipeline_read", optimizer.pipeline_read);
  context.read("zero_optimization.offload_optimizer.pipeline_write", optimizer.pipeline_write);
  context.read("zero_optimization.offload_optimizer.ratio", optimizer.ratio);
  using UpdateDevice = OffloadOptimizerConfig::UpdateDevice;
  const auto step = context.keys.get<std::string>("zero_optimization.offload_optimizer.step");
  if (step) optimizer.step = step == "gpu" ? UpdateDevice::kGpu : UpdateDevice::kCpu;

  fill_offload_param(context, config.zero);
  context.read("aio.block_size", config.aio.block_size);
  context.read("aio.queue_depth", config.aio.queue_depth);
  context.read("aio.intra_op_parallelism", config.aio.threads);
  context.read("bf16.bf16_optimizer_states", config.optimizer.bf16_states);
  context.read("bf16.bf16_master_weights_and_grads", config.optimizer.bf16_masters);
}

}  // namespace zeroth::configs
