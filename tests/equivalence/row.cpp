#include "tests/equivalence/row.h"

#include <fmt/format.h>

#include "tests/support/all_products.h"
#include "tests/support/ranks.h"

namespace zeroth::equivalence {
namespace {

const char* name_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kBf16:
      return "bf16";
    case configs::Precision::kFp16:
      return "fp16";
    default:
      return "fp32";
  }
}

std::string zero_name(const configs::ZeroConfig& zero) {
  const configs::ZeroConfig usual = Row{}.zero;
  std::string name;
  if (zero.param_persistence_threshold_elements != usual.param_persistence_threshold_elements)
    name += fmt::format(", persistence {}", zero.param_persistence_threshold_elements);
  if (zero.prefetch_bucket_elements != usual.prefetch_bucket_elements)
    name += fmt::format(", prefetch {}", zero.prefetch_bucket_elements);
  if (zero.max_live_elements != usual.max_live_elements)
    name += fmt::format(", max live {}", zero.max_live_elements);
  if (zero.hpz_partition_size != usual.hpz_partition_size)
    name += fmt::format(", {} near ranks", zero.hpz_partition_size);
  if (!zero.overlap_comm) name += ", no overlap";
  if (zero.overlap_step) name += ", step beside forward";
  if (!zero.reduce_scatter) name += ", no reduce-scatter";
  if (zero.reduce_bucket_elements != usual.reduce_bucket_elements)
    name += fmt::format(", reduce bucket {}", zero.reduce_bucket_elements);
  if (zero.allgather_bucket_elements != usual.allgather_bucket_elements)
    name += fmt::format(", allgather bucket {}", zero.allgather_bucket_elements);
  if (zero.sub_group_size_elements != usual.sub_group_size_elements)
    name += fmt::format(", tiles of {}", zero.sub_group_size_elements);
  return name;
}

const char* name_of(configs::OffloadDevice place) {
  constexpr const char* kNames[] = {"device", "cpu", "nvme"};
  return kNames[static_cast<size_t>(place)];
}

std::string offload_name(const configs::ZeroConfig& zero) {
  const configs::ZeroConfig usual;
  const auto& optimizer = zero.offload_optimizer;
  const auto& params = zero.offload_param;
  std::string name;
  if (optimizer.device != usual.offload_optimizer.device)
    name += fmt::format(", optimizer on {}", name_of(optimizer.device));
  if (optimizer.step == configs::OffloadOptimizerConfig::UpdateDevice::kGpu)
    name += " (a GPU's step)";
  if (optimizer.ratio != 1) name += fmt::format(" (ratio {})", optimizer.ratio);
  if (optimizer.buffer_count != usual.offload_optimizer.buffer_count || !optimizer.pipeline_read ||
      !optimizer.pipeline_write) {
    name += fmt::format(" ({} tiles{}{})", optimizer.buffer_count,
                        optimizer.pipeline_read ? "" : ", not read ahead",
                        optimizer.pipeline_write ? "" : ", not written behind");
  }
  if (params.device != usual.offload_param.device)
    name += fmt::format(", parameters on {} ({} buffers, {} kept)", name_of(params.device),
                        params.buffer_count, params.max_in_cpu_elements);
  return name;
}

std::string gradients_name(const configs::GradientConfig& gradients) {
  std::string name;
  if (gradients.prescale) name += ", prescaled";
  if (gradients.predivide_factor != 1) name += fmt::format(", / {}", gradients.predivide_factor);
  if (gradients.communication) name += fmt::format(", wire {}", name_of(*gradients.communication));
  return name;
}

std::string recompute_name(const configs::RecomputeConfig& recompute) {
  if (!recompute.is_on()) return "";
  const std::string name = recompute.every_nth_block > 0
                               ? fmt::format(", recompute every {}", recompute.every_nth_block)
                               : fmt::format(", {} checkpoints", recompute.number_checkpoints);
  return name + (recompute.cpu_checkpointing ? " on cpu" : "");
}

std::string pipeline_name(const configs::PipelineConfig& pipeline) {
  constexpr const char* kSchedules[] = {"1f1b",  "gpipe", "interleaved",
                                        "zb-h1", "zbv",   "breadth first"};
  const char* const schedule = kSchedules[static_cast<size_t>(pipeline.schedule)];
  if (pipeline.is_on()) return fmt::format(", {} stages {}", pipeline.stages, schedule);
  return pipeline.is_breadth_first() ? fmt::format(", {}", schedule) : "";
}

const char* samples_name(Samples samples) {
  constexpr const char* kNames[] = {"", ", short samples", ", packed samples"};
  return kNames[static_cast<size_t>(samples)];
}

std::string ranks_name(const Row& row) {
  std::string name;
  if (row.tensor > 1) name += fmt::format(" x tensor {}", row.tensor);
  if (row.machines > 1) name += fmt::format(" on {} machines", row.machines);
  return name;
}

std::string rounding_name(const Rounding& rounding) {
  std::string name;
  if (!rounding.product.empty()) name += ", products by " + rounding.product;
  if (rounding.reversed) name += ", samples reversed";
  if (rounding.moved_weights != 0)
    name += fmt::format(", weights moved {}", rounding.moved_weights);
  return name;
}

configs::OptimizerConfig optimizer_of(const Row& row) {
  using Kind = configs::OptimizerConfig::Kind;
  switch (row.training) {
    case Training::kAdamL2:
      return {.kind = Kind::kAdam, .lr = row.lr, .betas = {0.9, 0.95}, .weight_decay = 0.1};
    case Training::kAdamW8bit:
      return {.kind = Kind::kAdamW8bit,
              .lr = row.lr,
              .betas = {0.9, 0.95},
              .weight_decay = 0.1,
              .min_8bit_size = 500};
    case Training::kLion:
      return {.kind = Kind::kLion, .lr = 1e-4, .betas = {0.9, 0.99}, .weight_decay = 0.1};
    case Training::kSgd:
      return {
          .kind = Kind::kSgd, .lr = 0.05, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true};
    case Training::kAdagrad:
      return {.kind = Kind::kAdagrad, .lr = 1e-2, .eps = 1e-10, .weight_decay = 0.1};
    case Training::kLamb:
      return {.kind = Kind::kLamb, .lr = 1e-2, .betas = {0.9, 0.95}, .weight_decay = 0.1};
    default:
      return {.lr = row.lr,
              .betas = {0.9, 0.95},
              .eps = 1e-8,
              .weight_decay = 0.1,
              .no_decay = row.training == Training::kNoDecay,
              .bf16_states = row.training == Training::kBf16States,
              .bf16_masters =
                  row.training == Training::kBf16Masters || row.training == Training::kBf16States};
  }
}

configs::SchedulerConfig scheduler_of(const Row& row) {
  using Kind = configs::SchedulerConfig::Kind;
  if (row.training == Training::kOneCycle) {
    return {.kind = Kind::kOneCycle,
            .one_cycle = {.min_lr = 1e-4,
                          .max_lr = 2e-3,
                          .first_step_size = 6,
                          .second_step_size = 8,
                          .decay_step_size = 2,
                          .decay_lr_rate = 0.5}};
  }
  if (!row.cosine) return {};
  return {.kind = Kind::kWarmupCosineLr,
          .warmup_num_steps = 6,
          .warmup_type = configs::SchedulerConfig::Warmup::kLinear,
          .total_num_steps = 16,
          .warmup_min_ratio = 0.1,
          .cos_min_ratio = 0.05};
}

}  // namespace

std::string name_of(Training training) {
  constexpr const char* kNames[] = {
      "adamw",     "adam_l2",      "lion",        "sgd",        "adagrad", "lamb",  "no_decay",
      "one_cycle", "bf16_masters", "bf16_states", "adamw_8bit", "lora",    "qlora", "qlora_double"};
  static_assert(std::size(kNames) == static_cast<size_t>(Training::kQloraDouble) + 1);
  return kNames[static_cast<size_t>(training)];
}

std::string name_of(const Row& row) {
  return fmt::format(
      "{}, {}, {}, stage {}, {} ranks{}, accumulation {}, rate {}{}{}{}{}{}{}{}{}{}{}{}{}",
      row.model, name_of(row.training), name_of(row.precision), row.zero.stage, row.ranks,
      ranks_name(row), row.accumulation, row.lr, recompute_name(row.recompute),
      pipeline_name(row.pipeline), zero_name(row.zero), offload_name(row.zero),
      gradients_name(row.gradients), samples_name(row.samples), row.masked ? ", masked" : "",
      row.cosine ? ", cosine" : "", row.micro_batch_mean ? ", mean of micro-batches" : "",
      row.dropout > 0 ? fmt::format(", dropout {}", row.dropout) : "",
      row.clipping == 1 ? "" : fmt::format(", clipping {}", row.clipping),
      rounding_name(row.rounding));
}

void offload(Row& row, configs::OffloadDevice optimizer, configs::OffloadDevice parameters,
             const std::string& directory) {
  row.zero.offload_optimizer.device = optimizer;
  row.zero.offload_optimizer.nvme_path = directory;
  row.zero.offload_param.device = parameters;
  row.zero.offload_param.nvme_path = directory;
  row.zero.offload_param.max_in_cpu_elements = 0;
}

configs::Config config_of(const Row& row) {
  configs::Config config;
  const int64_t batch =
      row.samples == Samples::kPacked ? kGlobalBatch / kSamplesPerPackedRow : kGlobalBatch;
  config.batch = {.train_batch_size = batch,
                  .micro_batch_size = batch / (row.ranks * row.accumulation),
                  .accumulation_steps = row.accumulation};
  config.precision = row.precision;
  config.loss_scale.static_scale = 1024;
  config.optimizer = optimizer_of(row);
  config.scheduler = scheduler_of(row);
  config.gradients = row.gradients;
  config.gradient_clipping = row.clipping;
  if (row.micro_batch_mean) config.loss_mean = configs::LossMean::kMicroBatch;
  config.zero = row.zero;
  config.recompute = row.recompute;
  config.pipeline = row.pipeline;
  config.tensor_parallel = {.size = row.tensor, .overlap_comm = row.zero.overlap_comm};
  return config;
}

comm::MeshShape mesh_shape_of(const Row& row) {
  return comm::MeshShape::data_parallel(row.ranks)
      .with(comm::MeshDim::kPp, static_cast<int>(row.pipeline.stages))
      .with(comm::MeshDim::kTp, row.tensor);
}

Row plain(const Row& row) {
  Row result = row;
  const bool is_tied = row.model.ends_with("tied") || row.model.starts_with("gemma4");
  result.recompute = {};
  const bool reduces_each = row.zero.stage >= 2 && row.accumulation > 1 &&
                            (row.ranks > 1 || row.precision != configs::Precision::kFp32);
  result.zero = Row{}.zero;
  result.zero.stage = row.zero.stage;
  // With several stages, ZeRO stage 2 reduces once per step, as stage 1 does.
  const bool reduces_late = row.pipeline.is_on() && row.zero.stage == 2;
  if (reduces_late) result.zero.stage = 1;
  if (!is_tied && (!reduces_each || reduces_late)) result.pipeline = {};
  // These may change the order of sums.
  result.zero.reduce_scatter = row.zero.reduce_scatter;
  result.zero.reduce_bucket_elements = row.zero.reduce_bucket_elements;
  return result;
}

Row single(const Row& row) {
  Row result;
  result.precision = row.precision;
  result.model = row.model;
  if (row.samples != Samples::kFull) result.samples = Samples::kShort;
  result.masked = row.masked;
  result.lr = row.lr;
  result.clipping = row.clipping;
  result.cosine = row.cosine;
  result.training = row.training;
  result.dropout = row.dropout;
  result.micro_batch_mean = row.micro_batch_mean;
  if (row.micro_batch_mean) result.accumulation = row.accumulation * row.ranks;
  return result;
}

std::vector<Row> perturbed_runs(const Row& reference) {
  std::vector<Row> runs;
  const auto add = [&](const Rounding& rounding) {
    runs.push_back(reference);
    runs.back().rounding = rounding;
  };
  uint64_t seed = 0;
  for (const std::string& product : testing::all_products()) {
    // A GPU has one product: other weights stand for the others.
    if (testing::device_of_tests().is_cpu()) {
      add({.product = product});
    } else {
      add({.product = "", .moved_weights = ++seed});
    }
  }
  add({.product = "", .reversed = true});
  add({.product = "", .moved_weights = ++seed});
  return runs;
}

}  // namespace zeroth::equivalence
