#include "trainer/run_memory.h"

#include <algorithm>

#include "engine/memory/activation_probe.h"
#include "engine/start.h"
#include "model/blocks/build_blocks.h"
#include "model/blocks/embedding.h"
#include "model/blocks/head.h"
#include "trainer/run_plan.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// Builds the blocks of the first rank, whose part is as large as any.
model::Blocks plan_blocks(const ResolvedRun& run) {
  return model::build_blocks(run.spec, engine::fake_tensor_parallel(run.config));
}

engine::EstimateOptions estimate_options(const ResolvedRun& run) {
  return {
      .shape = engine::grid_shape(run.config, run.num_ranks),
      .device = run.device,
      .trains = !run.flags.eval_only,
      .saves_beside = run.saves_async(),
      .row_elements = run.samples.seq_len * run.spec.hidden_size / run.config.tensor_parallel.size,
      .max_rows = run.samples.train_samples};
}

// Embedding and head grow linearly with the vocabulary, so two small ones determine the full size.
constexpr int64_t kProbeVocabulary = 1024;

int64_t max_row_length(const std::unique_ptr<data::Dataset>& data, const RunPlan& plan) {
  return data ? data::max_row_length(*data, plan.train_partition(0).device) : 0;
}

class ActivationProbe {
 public:
  explicit ActivationProbe(const RunPlan& plan) : plan_(plan) {
    options_ = {.length = std::max(max_row_length(plan.samples.train, plan),
                                   max_row_length(plan.samples.eval, plan)),
                .dtype = zero::torch_dtype(plan.config.precision),
                .gradients = plan.estimate.grad_buffer_dtype,
                .trains = plan.samples.train != nullptr};
  }

  engine::ChainBytes chain() const {
    const int64_t vocabulary = plan_.spec.vocab_size;
    // Round up to a size that the ranks can share evenly.
    const int64_t ranks = plan_.config.tensor_parallel.size;
    const auto even = [ranks](int64_t size) { return (size + ranks - 1) / ranks * ranks; };
    const int64_t large = even(std::min(vocabulary, kProbeVocabulary)),
                  small = even((large + 1) / 2);
    const auto large_probe = engine::probe_blocks(blocks(large, 1), options_);
    const auto small_probe = engine::probe_blocks(blocks(small, 0), options_);
    engine::ChainBytes chain;
    chain.first = large_probe.front();
    chain.middle = large_probe[1];
    for (engine::Growth engine::BlockBytes::*bytes : kAll) {
      const engine::Growth &min_growth = small_probe.back().*bytes,
                           &max_growth = large_probe.back().*bytes;
      const auto steps = static_cast<double>(std::max<int64_t>(1, large - small));
      const engine::Growth each{.fixed = (max_growth.fixed - min_growth.fixed) / steps,
                                .per_token = (max_growth.per_token - min_growth.per_token) / steps};
      const auto above = static_cast<double>(vocabulary - small);
      chain.last.*
          bytes = {.fixed = min_growth.fixed + each.fixed * above,
                   .per_token = min_growth.per_token - each.per_token * static_cast<double>(small)};
      (chain.chunked.*bytes).per_token = each.per_token * static_cast<double>(vocabulary);
    }
    const model::VocabShard own(vocabulary, engine::fake_tensor_parallel(plan_.config));
    chain.chunk_tokens =
        model::default_chunk_rows(plan_.device, options_.dtype, own.max_local_size);
    return chain;
  }

 private:
  static constexpr engine::Growth engine::BlockBytes::*kAll[] = {
      &engine::BlockBytes::output, &engine::BlockBytes::no_grad,  &engine::BlockBytes::forward,
      &engine::BlockBytes::kept,   &engine::BlockBytes::backward, &engine::BlockBytes::freed};

  model::Blocks blocks(int64_t vocabulary, int64_t layers) const {
    model::ModelSpec spec = plan_.spec;
    spec.vocab_size = vocabulary;
    spec.num_layers = layers;
    return model::build_blocks(spec, engine::fake_tensor_parallel(plan_.config));
  }

  const RunPlan& plan_;
  engine::ProbeOptions options_;
};

}  // namespace

engine::MemoryEstimate estimate_memory(const ResolvedRun& run) {
  return engine::estimate_memory(plan_blocks(run), run.config, estimate_options(run));
}

engine::RunMemory run_memory(const RunPlan& plan, int local_ranks) {
  return engine::run_memory(plan_blocks(plan), plan.config, estimate_options(plan), local_ranks);
}

engine::MicroBatchSize measure_activations(const RunPlan& plan) {
  return {
      .chain = ActivationProbe(plan).chain(),
      .row_tokens = max_row_length(plan.samples.train, plan),
      .eval_tokens = plan.eval_partition(0).micro_batch * max_row_length(plan.samples.eval, plan)};
}

}  // namespace zeroth::trainer
