#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/text/printable.h"
#include "configs/resolve.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

const char* update_device_name(OffloadOptimizerConfig::UpdateDevice step) {
  using UpdateDevice = OffloadOptimizerConfig::UpdateDevice;
  if (step == UpdateDevice::kAuto) return "auto";
  return step == UpdateDevice::kGpu ? "gpu" : "cpu";
}

Json offload_json(const OffloadOptimizerConfig& optimizer) {
  return {{"device", to_string(optimizer.device)},
          {"nvme_path", or_null(optimizer.nvme_path)},
          {"buffer_count", optimizer.buffer_count},
          {"pin_memory", optimizer.pin_memory},
          {"pipeline_read", optimizer.pipeline_read},
          {"pipeline_write", optimizer.pipeline_write},
          {"ratio", optimizer.ratio},
          {"step", update_device_name(optimizer.step)}};
}

Json offload_json(const OffloadParamConfig& param) {
  const int64_t size = param.buffer_size_elements;
  return {{"device", to_string(param.device)},
          {"nvme_path", or_null(param.nvme_path)},
          {"buffer_count", param.buffer_count},
          {"buffer_size", size == kBufferSizeAsNeeded ? Json() : Json(size)},
          {"max_in_cpu", param.max_in_cpu_elements},
          {"pin_memory", param.pin_memory}};
}

Json aio_json(const AioConfig& aio) {
  return {{"block_size", aio.block_size},
          {"queue_depth", aio.queue_depth},
          {"intra_op_parallelism", aio.threads}};
}

Json zero_json(const ZeroConfig& zero) {
  return {{"stage", zero.stage},
          {"reduce_bucket_size", zero.reduce_bucket_elements},
          {"allgather_bucket_size", zero.allgather_bucket_elements},
          {"overlap_comm", zero.overlap_comm},
          {"overlap_step", zero.overlap_step},
          {"stage3_prefetch_bucket_size", zero.prefetch_bucket_elements},
          {"stage3_param_persistence_threshold", zero.param_persistence_threshold_elements},
          {"stage3_max_live_parameters", zero.max_live_elements},
          {"zero_hpz_partition_size", zero.hpz_partition_size},
          {"sub_group_size", zero.sub_group_size_elements},
          {"reduce_scatter", zero.reduce_scatter},
          {"ignore_unused_parameters", zero.ignore_unused_parameters},
          {"stage3_gather_16bit_weights_on_model_save", zero.gather_16bit_weights_on_model_save},
          {"offload_optimizer", offload_json(zero.offload_optimizer)},
          {"offload_param", offload_json(zero.offload_param)}};
}

Json bf16_json(const Config& config) {
  return {{"enabled", config.precision == Precision::kBf16},
          {"check_grad_overflow", config.check_grad_overflow},
          {"bf16_master_weights_and_grads", config.optimizer.bf16_masters},
          {"bf16_optimizer_states", config.optimizer.bf16_states}};
}

Json fp16_json(const Config& config) {
  const LossScaleConfig& scale = config.loss_scale;
  return {{"enabled", config.precision == Precision::kFp16},
          {"loss_scale", scale.static_scale},
          {"initial_scale_power", scale.initial_scale_power},
          {"loss_scale_window", scale.window},
          {"hysteresis", scale.hysteresis},
          {"consecutive_hysteresis", scale.consecutive_hysteresis},
          {"min_loss_scale", static_cast<int64_t>(scale.min_scale)}};
}

Json gradients_json(const GradientConfig& gradients) {
  Json json = {{"prescale_gradients", gradients.prescale},
               {"gradient_predivide_factor", gradients.predivide_factor},
               {"gradient_allreduce_op",
                gradients.reduce == GradientConfig::Reduction::kSum ? "sum" : "mean"}};
  json["communication_data_type"] =
      gradients.communication ? Json(to_string(*gradients.communication)) : Json();
  return json;
}

Json monitor_json(const MonitorConfig& monitor) {
  return {{"enabled", monitor.enabled},
          {"output_path", monitor.output_path},
          {"job_name", monitor.job_name}};
}

Json profilers_json(const Config& config) {
  const CommsLoggerConfig& logger = config.comms_logger;
  const FlopsProfilerConfig& profiler = config.flops_profiler;
  Json json;
  json["comms_logger"] = {{"enabled", logger.enabled},
                          {"verbose", logger.verbose},
                          {"prof_all", logger.prof_all},
                          {"prof_ops", logger.prof_ops},
                          {"debug", logger.debug}};
  json["flops_profiler"] = {{"enabled", profiler.enabled},
                            {"profile_step", profiler.profile_step},
                            {"module_depth", profiler.module_depth},
                            {"top_modules", profiler.top_modules},
                            {"detailed", profiler.detailed},
                            {"output_file", or_null(profiler.output_file)},
                            {"recompute_fwd_factor", profiler.recompute_fwd_factor}};
  return json;
}

// Returns JSON that any terminal can show. A path may contain bytes that are not UTF-8.
std::string printed(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

class Printer {
 public:
  explicit Printer(const Origins& origins) : origins_(origins) {}

  std::string print(const Json& root) {
    print_object(root, "");
    return std::move(text_);
  }

 private:
  void print_object(const Json& object, const std::string& path) {
    text_ += "{\n";
    indent_ += 2;
    size_t left = object.size();
    for (const auto& [name, value] : object.items()) {
      const std::string inner = path.empty() ? name : path + "." + name;
      const size_t start = text_.size();
      text_ += fmt::format("{:{}}\"{}\": ", "", indent_, name);
      value.is_object() ? print_object(value, inner) : void(text_ += printed(value));
      if (--left > 0) text_ += ",";
      if (const auto origin = origins_.find(inner); origin != origins_.end()) {
        const size_t width = text_.size() - start;
        constexpr size_t kColumn = 60;
        text_ +=
            fmt::format("{:{}}  // {}", "", width < kColumn ? kColumn - width : 0, origin->second);
      }
      text_ += "\n";
    }
    indent_ -= 2;
    text_ += fmt::format("{:{}}}}", "", indent_);
  }

  const Origins& origins_;
  std::string text_;
  size_t indent_ = 0;
};

Json warmup_params(const SchedulerConfig& scheduler) {
  using Kind = SchedulerConfig::Kind;
  const bool linear = scheduler.warmup_type == SchedulerConfig::Warmup::kLinear;
  Json params = {{"warmup_num_steps", scheduler.warmup_num_steps},
                 {"warmup_type", linear ? "linear" : "log"}};
  if (scheduler.kind != Kind::kWarmupLr) params["total_num_steps"] = scheduler.total_num_steps;
  if (scheduler.kind == Kind::kWarmupCosineLr) {
    params["warmup_min_ratio"] = scheduler.warmup_min_ratio;
    params["cos_min_ratio"] = scheduler.cos_min_ratio;
  } else {
    params["warmup_min_lr"] = scheduler.warmup_min_lr;
    params["warmup_max_lr"] = scheduler.warmup_max_lr;
  }
  return params;
}

Json cycle_params(const OneCycleConfig& cycle) {
  return {{"cycle_min_lr", cycle.min_lr},
          {"cycle_max_lr", cycle.max_lr},
          {"cycle_first_step_size", cycle.first_step_size},
          {"cycle_second_step_size", cycle.second_step_size},
          {"cycle_first_stair_count", cycle.first_stair_count},
          {"cycle_second_stair_count", cycle.second_stair_count},
          {"decay_step_size", cycle.decay_step_size},
          {"decay_lr_rate", cycle.decay_lr_rate},
          {"cycle_momentum", cycle.cycle_momentum},
          {"cycle_min_mom", cycle.min_momentum},
          {"cycle_max_mom", cycle.max_momentum},
          {"decay_mom_rate", cycle.decay_momentum_rate}};
}

Json range_test_params(const LrRangeTestConfig& test) {
  return {{"lr_range_test_min_lr", test.min_lr},
          {"lr_range_test_step_size", test.step_size},
          {"lr_range_test_step_rate", test.step_rate},
          {"lr_range_test_staircase", test.staircase}};
}

Json optimizer_json(const OptimizerConfig& optimizer) {
  using Kind = OptimizerConfig::Kind;
  const auto of = [&](const char* type, const Json& own) {
    Json params = {{"lr", optimizer.lr}};
    params.update(own);
    params["weight_decay"] = optimizer.weight_decay;
    return Json{{"type", type}, {"params", std::move(params)}};
  };
  switch (optimizer.kind) {
    case Kind::kAdamW:
    case Kind::kAdam: {
      const bool decoupled = optimizer.kind == Kind::kAdamW;
      return of(decoupled ? "AdamW" : "Adam", {{"bias_correction", optimizer.bias_correction},
                                               {"betas", optimizer.betas},
                                               {"eps", optimizer.eps},
                                               {"adam_w_mode", decoupled}});
    }
    case Kind::kLion:
      return of("Lion", {{"betas", optimizer.betas}});
    case Kind::kSgd:
      return of("SGD", {{"momentum", optimizer.momentum},
                        {"dampening", optimizer.dampening},
                        {"nesterov", optimizer.nesterov}});
    case Kind::kAdagrad:
      return of("Adagrad", {{"lr_decay", optimizer.lr_decay},
                            {"initial_accumulator_value", optimizer.initial_accumulator_value},
                            {"eps", optimizer.eps}});
    case Kind::kLamb:
      return of("Lamb", {{"bias_correction", optimizer.bias_correction},
                         {"betas", optimizer.betas},
                         {"eps", optimizer.eps},
                         {"eps_inside_sqrt", optimizer.eps_inside_sqrt},
                         {"max_coeff", optimizer.max_coeff},
                         {"min_coeff", optimizer.min_coeff}});
  }
  return {};
}

// Returns null for a constant rate and for schedules that only a flag can request.
Json scheduler_json(const SchedulerConfig& scheduler) {
  using Kind = SchedulerConfig::Kind;
  const auto of = [](const char* type, Json params) {
    return Json{{"type", type}, {"params", std::move(params)}};
  };
  switch (scheduler.kind) {
    case Kind::kConstant:
    case Kind::kHuggingFace:
      break;  // has no type in a file
    case Kind::kWarmupLr:
      return of("WarmupLR", warmup_params(scheduler));
    case Kind::kWarmupDecayLr:
      return of("WarmupDecayLR", warmup_params(scheduler));
    case Kind::kWarmupCosineLr:
      return of("WarmupCosineLR", warmup_params(scheduler));
    case Kind::kOneCycle:
      return of("OneCycle", cycle_params(scheduler.one_cycle));
    case Kind::kLrRangeTest:
      return of("LRRangeTest", range_test_params(scheduler.range_test));
  }
  return {};
}

Json json_of(const Config& config) {
  Json json = {{"train_batch_size", config.batch.train_batch_size},
               {"train_micro_batch_size_per_gpu", config.batch.micro_batch_size},
               {"gradient_accumulation_steps", config.batch.accumulation_steps},
               {"gradient_clipping", config.gradient_clipping},
               {"dataloader_drop_last", config.dataloader_drop_last},
               {"fp16", fp16_json(config)},
               {"bf16", bf16_json(config)},
               {"optimizer", optimizer_json(config.optimizer)}};
  if (const Json scheduler = scheduler_json(config.scheduler); !scheduler.is_null()) {
    json["scheduler"] = scheduler;
  }
  json["zero_optimization"] = zero_json(config.zero);
  const TensorParallelConfig& tensor = config.tensor_parallel;
  json["tensor_parallel"] = {{"autotp_size", tensor.size > 1 ? tensor.size : 0},
                             {"tp_overlap_comm", tensor.overlap_comm}};
  json["aio"] = aio_json(config.aio);
  json["activation_checkpointing"] = {{"number_checkpoints", config.recompute.number_checkpoints},
                                      {"cpu_checkpointing", config.recompute.cpu_checkpointing}};
  json.update(gradients_json(config.gradients));
  json["data_types"] = {{"grad_accum_dtype", to_string(config.gradients.accumulation)},
                        {"param_dtype", to_string(config.precision)}};
  json["steps_per_print"] = config.steps_per_print;
  json["wall_clock_breakdown"] = config.wall_clock_breakdown;
  json["memory_breakdown"] = config.memory_breakdown;
  json["dump_state"] = config.dump_state;
  json["log_level"] = to_string(config.log_level);
  json.update(profilers_json(config));
  json["tensorboard"] = monitor_json(config.tensorboard);
  json["csv_monitor"] = monitor_json(config.csv_monitor);
  return json;
}

// Returns the members that differ from those of `usual`, recursively for objects.
Json without_defaults(const Json& object, const Json& usual) {
  Json kept = Json::object();
  for (const auto& [name, value] : object.items()) {
    const auto other = usual.find(name);
    if (other == usual.end() || !value.is_object()) {
      if (other == usual.end() || value != *other) kept[name] = value;
    } else if (Json inner = without_defaults(value, *other); !inner.empty()) {
      kept[name] = std::move(inner);
    }
  }
  return kept;
}

std::string in_one_line(const Json& value) {
  if (!value.is_object()) return printed(value);
  std::vector<std::string> members;
  for (const auto& [name, member] : value.items()) {
    members.push_back(fmt::format("\"{}\": {}", name, in_one_line(member)));
  }
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

}  // namespace

std::string to_json(const Config& config, const Origins& origins) {
  return Printer(origins).print(json_of(config));
}

std::string changed_keys(const Config& before, const Config& after) {
  const Json old = json_of(before), now = json_of(after);
  const Json usual = json_of(Config{});
  std::vector<std::string> keys;
  for (const auto& [name, value] : now.items()) {
    if (old.contains(name) && old[name] == value) continue;
    Json shown = value;
    if (value.is_object()) {
      shown = Json::object();
      if (value.contains("stage")) shown["stage"] = value["stage"];
      shown.update(without_defaults(value, usual.value(name, Json::object())));
    }
    keys.push_back(fmt::format("\"{}\": {}", name, in_one_line(shown)));
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace zeroth::configs
