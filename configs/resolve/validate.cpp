#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json/json.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

void check_flag(Context& context, const char* flag, std::optional<double> value,
                std::string_view range) {
  if (value && !in_range(*value, range)) {
    context.add_error("{}: expected {}, found {}", flag, range, *value);
  }
}

void check_flag_of_key(Context& context, const char* flag, std::optional<double> value,
                       std::string_view path) {
  const ConfigKey* key = find_key(path);
  ZEROTH_CHECK(key != nullptr, "no key {}", path);
  check_flag(context, flag, value, key->accepts);
}

void check_precision(Context& context) {
  const CheckedKeys& keys = context.keys;
  const bool fp16 = keys.get<bool>("fp16.enabled").value_or(false);
  if (fp16 && keys.get<bool>("bf16.enabled").value_or(false)) {
    context.add_error("fp16.enabled and bf16.enabled are both true: switch one off");
  }
}

void check_dynamic_scale(Context& context, const Config& config) {
  if (config.precision != Precision::kFp16 || config.loss_scale.static_scale != 0) return;
  for (const char* path : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
    const std::optional<int64_t> value = context.keys.get<int64_t>(path);
    if (value && *value <= 0) {
      context.add_error("{}: expected an integer > 0 for a dynamic loss scale, found {}", path,
                        *value);
    }
  }
}

void check_optimizer(Context& context, const Config& config) {
  const std::string path = "optimizer.params.adam_w_mode";
  const auto type = context.keys.get<std::string>("optimizer.type");
  const bool decoupled = config.optimizer.kind == OptimizerConfig::Kind::kAdamW;
  if (type && decoupled && context.keys.get<bool>(path) == false) {
    context.add_error("{}: false contradicts optimizer.type {}: write type Adam", path, *type);
  }
}

// Warns about a rate with which hardly anything trains, such as 2e5 instead of 2e-5.
void check_rates(Context& context, const Config& config) {
  const double max_rate = config.optimizer.kind == OptimizerConfig::Kind::kSgd ? 100 : 1;
  const auto check = [&](const std::string& name, double rate) {
    if (!(rate > max_rate)) return;
    warn(context.notes, name,
         "{} {:g}: a learning rate above {:g} hardly ever trains; was a minus sign lost, as in 2e5 "
         "for 2e-5?",
         name, rate, max_rate);
  };
  const std::string lr = "optimizer.params.lr";
  check(context.keys.get<double>(lr) ? lr : "--lr", config.optimizer.lr);
  for (const char* param :
       {"warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "lr_range_test_min_lr"}) {
    const std::string path = fmt::format("scheduler.params.{}", param);
    if (const auto rate = context.keys.get<double>(path)) check(path, *rate);
  }
}

void check_schedule(Context& context, const Config& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  if (scheduler.total_num_steps > 0 && scheduler.total_num_steps < scheduler.warmup_num_steps) {
    warn(context.notes, "scheduler.params.warmup_num_steps",
         "the schedule has {} steps, fewer than its warm-up of {}", scheduler.total_num_steps,
         scheduler.warmup_num_steps);
  }
}

void check_recompute(Context& context, const Config& config) {
  if (config.recompute.every_nth_block > 0 && config.recompute.number_checkpoints > 0) {
    context.add_error(
        "activation_checkpointing.number_checkpoints: {} in the file, but "
        "--gradient-checkpointing={}: give only one of them",
        config.recompute.number_checkpoints, config.recompute.every_nth_block);
  }
  const bool recomputes =
      config.recompute.every_nth_block > 0 || config.recompute.number_checkpoints > 0;
  if (config.recompute.cpu_checkpointing && !recomputes && context.facts_known) {
    warn(context.notes, "activation_checkpointing.cpu_checkpointing",
         "activation_checkpointing.cpu_checkpointing true has no effect: nothing is recomputed "
         "without number_checkpoints or --gradient-checkpointing");
  }
}

constexpr char kOptimizer[] = "zero_optimization.offload_optimizer";
constexpr char kParam[] = "zero_optimization.offload_param";

void check_optimizer(Context& context, const OffloadOptimizerConfig& optimizer) {
  const int64_t min_buffers = 1 + optimizer.pipeline_read + optimizer.pipeline_write;
  if (optimizer.device == OffloadDevice::kNvme && optimizer.buffer_count < min_buffers) {
    context.add_error(
        "{0}.buffer_count: {1} is too small for {0}.pipeline_read {2} and pipeline_write {3}: the "
        "smallest that works is {4}",
        kOptimizer, optimizer.buffer_count, optimizer.pipeline_read, optimizer.pipeline_write,
        min_buffers);
  }
}

void check_param(Context& context, const ZeroConfig& zero) {
  const OffloadParamConfig& param = zero.offload_param;
  constexpr int64_t kMinBuffers = 2;  // one in use while another is read or written
  if (param.device == OffloadDevice::kNvme && param.buffer_count < kMinBuffers) {
    context.add_error("{}.buffer_count: {} is too small: the smallest that works is {}", kParam,
                      param.buffer_count, kMinBuffers);
  }
}

void check_block_size(Context& context, int64_t bytes) {
  constexpr int64_t kAlignment = 4096;
  if (bytes % kAlignment != 0) {
    context.add_error("aio.block_size: expected a multiple of {}, found {}; the next one is {}",
                      kAlignment, bytes, (bytes / kAlignment + 1) * kAlignment);
  }
}

// Warns about values other than the default that the device of their section leaves without effect.
void warn_unused_offload_keys(Context& context, const std::string& section, OffloadDevice device,
                              std::string_view only_nvme) {
  if (device == OffloadDevice::kNvme || context.keys.is_bad(section + ".device")) return;
  const auto names = split_values(only_nvme, ' ');
  for (const FileKey& given : context.keys.given) {
    if (given.key == nullptr || !given.key->path.starts_with(section + ".")) continue;
    const std::string path(given.key->path);
    const std::string name = path.substr(section.size() + 1);
    const auto value = context.keys.values.find(path);
    const bool idle = device == OffloadDevice::kNone ||
                      std::find(names.begin(), names.end(), name) != names.end();
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
  const bool masters = config.optimizer.bf16_masters, states = config.optimizer.bf16_states;
  if (!masters && !states) return;
  const CheckedKeys& keys = context.keys;
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
  const bool lamb = config.optimizer.kind == OptimizerConfig::Kind::kLamb;
  need("optimizer.type", !lamb, "other than Lamb", "Lamb");
  need(of_optimizer("step"), optimizer.step != OffloadOptimizerConfig::UpdateDevice::kGpu,
       "\"cpu\" or \"auto\"", "\"gpu\"");
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

void check_flags(Context& context) {
  const FlagValues& flags = context.flags;
  check_flag_of_key(context, "--micro-batch", flags.micro_batch, "train_micro_batch_size_per_gpu");
  check_flag_of_key(context, "--accumulation", flags.accumulation, "gradient_accumulation_steps");
  check_flag_of_key(context, "--global-batch", flags.global_batch, "train_batch_size");
  check_flag_of_key(context, "--tensor-parallel", flags.tensor_parallel,
                    "tensor_parallel.autotp_size");
  check_flag_of_key(context, "--lr", flags.lr, "optimizer.params.lr");
  check_flag_of_key(context, "--weight-decay", flags.weight_decay, "optimizer.params.weight_decay");
  check_flag_of_key(context, "--eps", flags.eps, "optimizer.params.eps");
  check_flag_of_key(context, "--max-grad-norm", flags.max_grad_norm, "gradient_clipping");
  if (flags.betas) {
    for (const double beta : *flags.betas) {
      check_flag_of_key(context, "--betas", beta, "optimizer.params.betas");
    }
  }
  check_flag(context, "--warmup-steps", flags.warmup_steps, ">= 0");
  check_flag(context, "--warmup-ratio", flags.warmup_ratio, "0..1");
  check_flag(context, "--dropout", flags.dropout, "[0, 1)");
  check_flag(context, "--gradient-checkpointing", flags.gradient_checkpointing, ">= 1");
}

void validate(Context& context, const Config& config) {
  check_precision(context);
  check_dynamic_scale(context, config);
  check_optimizer(context, config);
  check_rates(context, config);
  check_schedule(context, config);
  check_recompute(context, config);
  check_offload(context, config);
  check_tensor_parallel(context, config);
}

void check_offload(Context& context, const Config& config) {
  const ZeroConfig& zero = config.zero;
  check_optimizer(context, zero.offload_optimizer);
  check_param(context, zero);
  check_block_size(context, config.aio.block_size);
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
