#include <nlohmann/json.hpp>

#include "configs/loader.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

Json optimizer_json(const OptimizerConfig& optimizer) {
  const bool decoupled = optimizer.kind == OptimizerConfig::Kind::kAdamW;
  Json params = {{"lr", optimizer.lr},
                 {"betas", optimizer.betas},
                 {"eps", optimizer.eps},
                 {"weight_decay", optimizer.weight_decay},
                 {"adam_w_mode", decoupled}};
  return {{"type", decoupled ? "AdamW" : "Adam"}, {"params", std::move(params)}};
}

Json scheduler_json(const SchedulerConfig& scheduler) {
  using Kind = SchedulerConfig::Kind;
  Json params = {{"warmup_num_steps", scheduler.warmup_num_steps},
                 {"warmup_type",
                  scheduler.warmup_type == SchedulerConfig::Warmup::kLinear ? "linear" : "log"}};
  if (scheduler.kind != Kind::kWarmupLr) params["total_num_steps"] = scheduler.total_num_steps;
  if (scheduler.kind == Kind::kWarmupCosineLr) {
    params["warmup_min_ratio"] = scheduler.warmup_min_ratio;
    params["cos_min_ratio"] = scheduler.cos_min_ratio;
    return {{"type", "WarmupCosineLR"}, {"params", std::move(params)}};
  }
  params["warmup_min_lr"] = scheduler.warmup_min_lr;
  params["warmup_max_lr"] = scheduler.warmup_max_lr;
  return {{"type", scheduler.kind == Kind::kWarmupLr ? "WarmupLR" : "WarmupDecayLR"},
          {"params", std::move(params)}};
}

Json zero_json(const ZeroConfig& zero) {
  return {{"stage", zero.stage},
          {"reduce_bucket_size", zero.reduce_bucket_elements},
          {"allgather_bucket_size", zero.allgather_bucket_elements},
          {"overlap_comm", zero.overlap_comm},
          {"stage3_prefetch_bucket_size", zero.prefetch_bucket_elements},
          {"stage3_param_persistence_threshold", zero.param_persistence_threshold_elements},
          {"stage3_max_live_parameters", zero.max_live_elements}};
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

}  // namespace

std::string to_json(const Config& config) {
  Json json = {{"train_batch_size", config.batch.train_batch_size},
               {"train_micro_batch_size_per_gpu", config.batch.micro_batch_size},
               {"gradient_accumulation_steps", config.batch.accumulation_steps},
               {"gradient_clipping", config.gradient_clipping},
               {"steps_per_print", config.steps_per_print},
               {"wall_clock_breakdown", config.wall_clock_breakdown},
               {"fp16", fp16_json(config)},
               {"bf16", {{"enabled", config.precision == Precision::kBf16}}},
               {"optimizer", optimizer_json(config.optimizer)}};
  if (config.scheduler.kind != SchedulerConfig::Kind::kConstant) {
    json["scheduler"] = scheduler_json(config.scheduler);
  }
  json["zero_optimization"] = zero_json(config.zero);
  json["activation_checkpointing"] = {{"number_checkpoints", config.recompute.number_checkpoints}};
  return json.dump(2);
}

}  // namespace zeroth::configs
