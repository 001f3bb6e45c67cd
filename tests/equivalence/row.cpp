#include "tests/equivalence/row.h"

#include <fmt/format.h>

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
  if (!zero.overlap_comm) name += ", no overlap";
  return name;
}

std::string recompute_name(const configs::RecomputeConfig& recompute) {
  if (recompute.every_nth_block > 0)
    return fmt::format(", recompute every {}", recompute.every_nth_block);
  if (recompute.number_checkpoints > 0)
    return fmt::format(", {} checkpoints", recompute.number_checkpoints);
  return "";
}

}  // namespace

std::string name_of(const Row& row) {
  return fmt::format("{}, {}, stage {}, {} ranks, accumulation {}, rate {}{}{}{}{}", row.model,
                     name_of(row.precision), row.zero.stage, row.ranks, row.accumulation, row.lr,
                     recompute_name(row.recompute), zero_name(row.zero),
                     row.masked ? ", masked" : "", row.cosine ? ", cosine" : "");
}

configs::Config config_of(const Row& row) {
  configs::Config config;
  config.batch = {.train_batch_size = kGlobalBatch,
                  .micro_batch_size = kGlobalBatch / (row.ranks * row.accumulation),
                  .accumulation_steps = row.accumulation};
  config.precision = row.precision;
  config.loss_scale.static_scale = 1024;
  config.optimizer = {.lr = row.lr, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1};
  if (row.cosine) {
    config.scheduler = {.kind = configs::SchedulerConfig::Kind::kWarmupCosineLr,
                        .warmup_num_steps = 6,
                        .warmup_type = configs::SchedulerConfig::Warmup::kLinear,
                        .total_num_steps = 16,
                        .warmup_min_ratio = 0.1,
                        .cos_min_ratio = 0.05};
  }
  config.zero = row.zero;
  config.recompute = row.recompute;
  return config;
}

Row plain(const Row& row) {
  Row result = row;
  result.recompute = {};
  result.zero = Row{}.zero;
  result.zero.stage = row.zero.stage;
  return result;
}

Row single(const Row& row) {
  Row result;
  result.precision = row.precision;
  result.model = row.model;
  result.masked = row.masked;
  result.lr = row.lr;
  result.cosine = row.cosine;
  return result;
}

}  // namespace zeroth::equivalence
