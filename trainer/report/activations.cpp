#include "trainer/report/activations.h"

#include <algorithm>

#include "engine/activation_probe.h"
#include "engine/tensor_ranks.h"
#include "model/blocks/build.h"
#include "model/blocks/head.h"
#include "model/blocks/vocabulary.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// Embedding and head grow evenly with the vocabulary, so that two small ones tell of the whole.
constexpr int64_t kVocabulary = 1024;

int64_t longest_row(const std::unique_ptr<data::Dataset>& data, const RunPlan& plan) {
  return data ? data::longest_row(*data, plan.train_deal(0).device) : 0;
}

class Estimate {
 public:
  explicit Estimate(const RunPlan& plan) : plan_(plan) {
    options_ = {.length = std::max(longest_row(plan.samples.train, plan),
                                   longest_row(plan.samples.eval, plan)),
                .dtype = zero::dtype_of(plan.config.precision),
                .gradients = plan.outline.opened_gradients,
                .trains = plan.samples.train != nullptr};
  }

  engine::ChainBytes chain() const {
    const int64_t vocabulary = plan_.spec.vocab_size;
    // As many as any number of ranks can share evenly.
    const int64_t ranks = plan_.config.tensor_parallel.size;
    const auto even = [ranks](int64_t size) { return (size + ranks - 1) / ranks * ranks; };
    const int64_t large = even(std::min(vocabulary, kVocabulary)), small = even((large + 1) / 2);
    const auto whole = engine::probe_blocks(blocks(large, 1), options_);
    const auto ends = engine::probe_blocks(blocks(small, 0), options_);
    engine::ChainBytes chain;
    chain.first = whole.front();
    chain.middle = whole[1];
    for (engine::Growth engine::BlockBytes::*bytes : kAll) {
      const engine::Growth &least = ends.back().*bytes, &most = whole.back().*bytes;
      const auto steps = static_cast<double>(std::max<int64_t>(1, large - small));
      const engine::Growth each{.fixed = (most.fixed - least.fixed) / steps,
                                .per_token = (most.per_token - least.per_token) / steps};
      const auto above = static_cast<double>(vocabulary - small);
      chain.last.*
          bytes = {.fixed = least.fixed + each.fixed * above,
                   .per_token = least.per_token - each.per_token * static_cast<double>(small)};
      (chain.chunked.*bytes).per_token = each.per_token * static_cast<double>(vocabulary);
    }
    const model::Vocabulary own(vocabulary, engine::rehearsed_tensor_ranks(plan_.config));
    chain.chunk_tokens = model::usual_chunk_rows(plan_.device, options_.dtype, own.most);
    return chain;
  }

 private:
  static constexpr engine::Growth engine::BlockBytes::*kAll[] = {
      &engine::BlockBytes::output, &engine::BlockBytes::alone,    &engine::BlockBytes::forward,
      &engine::BlockBytes::kept,   &engine::BlockBytes::backward, &engine::BlockBytes::freed};

  model::Blocks blocks(int64_t vocabulary, int64_t layers) const {
    model::ModelSpec spec = plan_.spec;
    spec.vocab_size = vocabulary;
    spec.num_layers = layers;
    return model::build_blocks(spec, engine::rehearsed_tensor_ranks(plan_.config));
  }

  const RunPlan& plan_;
  engine::ProbeOptions options_;
};

}  // namespace

engine::MicroBatchSize measure_activations(const RunPlan& plan) {
  return {.chain = Estimate(plan).chain(),
          .row_tokens = longest_row(plan.samples.train, plan),
          .eval_tokens = plan.eval_deal(0).micro_batch * longest_row(plan.samples.eval, plan)};
}

}  // namespace zeroth::trainer
