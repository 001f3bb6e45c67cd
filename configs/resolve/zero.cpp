#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/json/json.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr char kOptimizer[] = "zero_optimization.offload_optimizer";
constexpr char kParam[] = "zero_optimization.offload_param";

// A SizeFormula is Hugging Face's formula for an "auto", of the model's hidden size. It resolves
// some at stage 3 only; DeepSpeed uses its default otherwise.
struct SizeFormula {
  const char* path;
  double factor;
  bool squared;
  const char* text;
  bool only_stage3 = true;
};

constexpr SizeFormula kSizeFormulas[] = {
    {"zero_optimization.reduce_bucket_size", 1, true, "hidden size squared", false},
    {"zero_optimization.stage3_prefetch_bucket_size", 0.9, true, "0.9 * hidden size squared"},
    {"zero_optimization.stage3_param_persistence_threshold", 10, false, "10 * hidden size"},
};

void resolve_auto_sizes(Context& context, Config& config) {
  const auto hidden = static_cast<double>(context.facts.hidden_size);
  for (const SizeFormula& formula : kSizeFormulas) {
    if (!context.keys.is_auto(formula.path)) continue;
    const bool applies = !formula.only_stage3 || config.zero.stage == 3;
    context.origins[formula.path] = applies ? formula.text : "the default";
    if (!applies) continue;
    if (hidden > 0) {
      const double value = formula.factor * hidden * (formula.squared ? hidden : 1);
      set_value(config, formula.path, static_cast<int64_t>(value));
    } else if (context.facts_known) {
      context.add_error("{}: \"auto\" needs the model's hidden size: give a number", formula.path);
    }
  }
}

namespace fs = std::filesystem;

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

// Makes the path absolute, so that it is the same directory whatever a rank's working directory is.
void resolve_nvme_path(Context& context, const std::string& section, Config& config) {
  const std::string path = section + ".nvme_path";
  const auto& values = context.keys.values;
  const auto found = values.find(path);
  const std::string given = context.keys.get<std::string>(path).value_or("");
  const bool used = value_of(config, section + ".device") == "nvme" && !context.keys.is_bad(path);
  std::string directory;
  if (given.empty()) {
    if (used) {
      context.add_error("{}.device: \"nvme\" needs {}, a folder on the disk to be used, found {}",
                        section, path, found == values.end() ? "null" : quoted(found->second));
    }
  } else {
    try {
      directory = absolute(given);
      if (used) check_nvme_directory(context, path, given, directory);
    } catch (const Error& error) {
      if (used) context.add_error("{}: {}", path, error.what());
    }
  }
  set_value(config, path, directory);
}

// Returns whether the stage leaves offload_param without effect.
bool ignores_offload_param(const Context& context, const ZeroConfig& zero) {
  return zero.stage != 3 && !context.keys.is_bad("zero_optimization.stage");
}

void check_buffers(Context& context, const ZeroConfig& zero) {
  const OffloadOptimizerConfig& optimizer = zero.offload_optimizer;
  const int64_t min_buffers = 1 + optimizer.pipeline_read + optimizer.pipeline_write;
  if (optimizer.device == OffloadDevice::kNvme && optimizer.buffer_count < min_buffers) {
    context.add_error(
        "{0}.buffer_count: {1} is too small for {0}.pipeline_read {2} and pipeline_write {3}: the "
        "smallest that works is {4}",
        kOptimizer, optimizer.buffer_count, optimizer.pipeline_read, optimizer.pipeline_write,
        min_buffers);
  }
  const OffloadParamConfig& param = zero.offload_param;
  constexpr int64_t kMinBuffers = 2;  // one in use while another is read or written
  if (param.device == OffloadDevice::kNvme && param.buffer_count < kMinBuffers) {
    context.add_error("{}.buffer_count: {} is too small: the smallest that works is {}", kParam,
                      param.buffer_count, kMinBuffers);
  }
}

// Warns about values other than the default that the device of their section leaves without effect.
void warn_unused_offload_keys(Context& context, const std::string& section, OffloadDevice device,
                              std::string_view only_nvme) {
  if (device == OffloadDevice::kNvme || context.keys.is_bad(section + ".device")) return;
  for (const FileKey& given : context.keys.given) {
    if (given.key == nullptr || !given.key->path.starts_with(section + ".")) continue;
    const std::string path(given.key->path);
    const std::string name = path.substr(section.size() + 1);
    const auto value = context.keys.values.find(path);
    const bool idle = device == OffloadDevice::kNone || contains_value(only_nvme, name, ' ');
    if (!idle || value == context.keys.values.end() || value->second == "auto") continue;
    if (value->second == parse_trusted_json(given.key->default_value)) continue;
    warn(context.notes, given.path, "{} {} has no effect: {}.device is \"{}\"", given.path,
         quoted(value->second), section, to_string(device));
  }
}

// Checks DeepSpeed's rules for bf16 states, except that DeepSpeed also keeps them without offload.
// bf16 masters can be updated on the CPU only, not yet on a GPU.
void check_bf16(Context& context, const Config& config) {
  constexpr char kMasters[] = "bf16.bf16_master_weights_and_grads";
  constexpr char kStates[] = "bf16.bf16_optimizer_states";
  const CheckedKeys& keys = context.keys;
  if (!config.optimizer.keeps_bf16()) return;
  const bool masters = keys.get<bool>(kMasters).value_or(false);
  const OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  const auto need = [&](const std::string& path, bool there, const auto& wanted,
                        const auto& found) {
    if (there || keys.is_bad(path)) return;
    context.add_error("{}: true needs {} {}, found {}", masters ? kMasters : kStates, path, wanted,
                      found);
  };
  const auto of_optimizer = [](const char* name) { return fmt::format("{}.{}", kOptimizer, name); };
  const bool bf16 = config.precision == Precision::kBf16 ||
                    (!context.facts_known && !keys.get<bool>("bf16.enabled"));  // --bf16 may follow
  need("bf16.enabled", bf16, true, fmt::format("a run in {}", to_string(config.precision)));
  need("zero_optimization.stage", config.zero.stage > 0, "1, 2 or 3", config.zero.stage);
  need(of_optimizer("device"), optimizer.device != OffloadDevice::kNone, "\"cpu\" or \"nvme\"",
       "\"none\"");
  need(of_optimizer("ratio"), optimizer.ratio == 1, 1, optimizer.ratio);
  const auto type = value_of(config, "optimizer.type").get<std::string>();
  need("optimizer.type", type != "Lamb" && type != "AdamW8bit", "other than Lamb and AdamW8bit",
       type);
  const std::string step = of_optimizer("step");
  need(step, value_of(config, step) != "gpu", "\"cpu\" or \"auto\"", "\"gpu\"");
  if (!masters) context.add_error("{}: true needs {} true, found false", kStates, kMasters);
}

void check_hybrid_shard(Context& context, const ZeroConfig& zero) {
  constexpr char kHybrid[] = "zero_optimization.zero_hpz_partition_size";
  const int64_t size = zero.hpz_partition_size, ranks = context.data_ranks;
  if (size == 1 || context.keys.is_bad(kHybrid)) return;
  if (zero.stage != 3) {
    if (context.keys.is_bad("zero_optimization.stage")) return;
    warn(context.notes, kHybrid,
         "{}: {} has no effect at stage {}: only stage 3 gathers parameters", kHybrid, size,
         zero.stage);
    return;
  }
  if (ranks > 0 && ranks % size != 0) {
    context.add_error("{}: {} does not divide the number of data ranks, {}", kHybrid, size, ranks);
  }
  if (zero.offload_param.device != OffloadDevice::kNone) {
    context.add_error(
        "{}: {} keeps a secondary shard on the device, but {}.device is \"{}\": reset one of them "
        "(1, \"none\")",
        kHybrid, size, kParam, to_string(zero.offload_param.device));
  }
}

// Warns in one line, because such sections are often copied as a whole.
void warn_unused_aio(Context& context, const ZeroConfig& zero) {
  const auto is_file = [](OffloadDevice device) { return device == OffloadDevice::kNvme; };
  if (is_file(zero.offload_optimizer.device) || is_file(zero.offload_param.device)) return;
  const auto& given = context.keys.given;
  if (std::any_of(given.begin(), given.end(),
                  [](const FileKey& key) { return key.path.starts_with("aio."); })) {
    warn(context.notes, "aio", "aio has no effect: neither {}.device nor {}.device is \"nvme\"",
         kOptimizer, kParam);
  }
}

}  // namespace

void fill_zero(Context& context, Config& config) {
  resolve_auto_sizes(context, config);
  resolve_nvme_path(context, kOptimizer, config);
  if (!ignores_offload_param(context, config.zero)) {
    return resolve_nvme_path(context, kParam, config);
  }
  config.zero.offload_param = {};
  const std::string path = kParam;
  const std::string device = context.keys.get<std::string>(path + ".device").value_or("none");
  if (device == "none") return;
  warn(context.notes, path,
       "{}.device \"{}\" has no effect, as in DeepSpeed: it needs zero_optimization.stage 3, "
       "found {}",
       path, device, config.zero.stage);
}

void check_offload(Context& context, const Config& config) {
  constexpr int64_t kAlignment = 4096;
  const ZeroConfig& zero = config.zero;
  check_buffers(context, zero);
  if (const int64_t bytes = config.aio.block_size; bytes % kAlignment != 0) {
    context.add_error("aio.block_size: expected a multiple of {}, found {}; the next one is {}",
                      kAlignment, bytes, (bytes / kAlignment + 1) * kAlignment);
  }
  check_bf16(context, config);
  check_hybrid_shard(context, zero);
  warn_unused_offload_keys(context, kOptimizer, zero.offload_optimizer.device,
                           "nvme_path buffer_count pipeline_read pipeline_write");
  if (!ignores_offload_param(context, zero)) {
    warn_unused_offload_keys(context, kParam, zero.offload_param.device,
                             "nvme_path buffer_count buffer_size max_in_cpu");
  }
  warn_unused_aio(context, zero);
}

}  // namespace zeroth::configs
