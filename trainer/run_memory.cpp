#include "trainer/run_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/memory/activation_probe.h"
#include "engine/start.h"
#include "engine/step/schedule_check.h"
#include "model/blocks/embedding.h"
#include "model/blocks/head.h"
#include "trainer/run_adapter.h"
#include "trainer/run_plan.h"
#include "zero/dtype.h"

namespace zeroth::trainer {
namespace {

// Builds the blocks of the first rank, whose part is as large as any.
model::Blocks plan_blocks(const ResolvedRun& run) {
  return build_blocks(run, run.spec, engine::fake_tensor_parallel(run.config));
}

// Returns the elements of each row in the input of a layer, on one of `ranks` that split it.
int64_t input_size(const model::ModelSpec& spec, int64_t layer, int64_t ranks) {
  const std::vector<int64_t> sizes = model::input_sizes(spec, layer, ranks);
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// Returns the same of all layers' inputs: their mean, or in a pipeline, whose stages have different
// ones, the largest.
int64_t input_size(const model::ModelSpec& spec, const comm::MeshShape& shape) {
  int64_t sum = 0, largest = spec.hidden_size;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const int64_t size = input_size(spec, layer, shape[comm::MeshDim::kTp]);
    sum += size;
    largest = std::max(largest, size);
  }
  if (shape[comm::MeshDim::kPp] > 1 || spec.num_layers == 0) return largest;
  return (sum + spec.num_layers - 1) / spec.num_layers;
}

engine::EstimateOptions estimate_options(const ResolvedRun& run) {
  const comm::MeshShape shape = engine::grid_shape(run.config, run.num_ranks);
  return {
      .shape = shape,
      .device = run.device,
      .trains = !run.flags.eval_only,
      .saves_frozen = !run.adapter,
      .saves_beside = run.saves_async(),
      .row_elements = run.samples.seq_len * input_size(run.spec, shape) / shape[comm::MeshDim::kTp],
      .max_rows = run.samples.train_samples};
}

// Embedding and head grow linearly with the vocabulary, so two small ones determine the full size
// of each.
constexpr int64_t kProbeVocabulary = 1024;

int64_t max_row_length(const std::unique_ptr<data::Dataset>& data, const RunPlan& plan) {
  return data ? data::max_row_length(*data, plan.train_partition(0).device) : 0;
}

constexpr engine::Growth engine::BlockBytes::*kAll[] = {
    &engine::BlockBytes::output, &engine::BlockBytes::no_grad,  &engine::BlockBytes::forward,
    &engine::BlockBytes::kept,   &engine::BlockBytes::backward, &engine::BlockBytes::freed};

// What a micro-batch needs in the plan's chain.
struct ProbedChain {
  engine::ChainBytes bytes;
  std::vector<double> block_times;
};

// The layers of a model that need different memory or time.
struct LayerKinds {
  std::vector<model::LayerSpec> kinds;
  std::vector<size_t> of_layer;  // [layer]: its kind
};

LayerKinds layer_kinds(const model::ModelSpec& spec) {
  LayerKinds found;
  for (int64_t index = 0; index < spec.num_layers; ++index) {
    model::LayerSpec layer = spec.layer(index);
    layer.score_scale = spec.score_scale(0);  // costs nothing
    layer.kv_layer.reset();                   // computed or carried, keys and values are as large
    const auto same = std::ranges::find(found.kinds, layer);
    found.of_layer.push_back(static_cast<size_t>(same - found.kinds.begin()));
    if (same == found.kinds.end()) found.kinds.push_back(layer);
  }
  return found;
}

// Adds bytes per token that a block's probe did not have in its input and output.
void add_carried(engine::BlockBytes& bytes, double input, double output) {
  for (engine::Growth engine::BlockBytes::*of_output :
       {&engine::BlockBytes::output, &engine::BlockBytes::no_grad, &engine::BlockBytes::forward,
        &engine::BlockBytes::kept, &engine::BlockBytes::freed})
    (bytes.*of_output).per_token += output;
  bytes.backward.per_token += input;
}

// CarriedBytes are the bytes per token of model::CarriedStates.
struct CarriedBytes {
  const model::ModelSpec& spec;
  int64_t ranks;       // that split a layer
  double per_element;  // of a row, on each of them

  double into(int64_t layer) const {
    return per_element * static_cast<double>(input_size(spec, layer, ranks) - spec.hidden_size);
  }
  // What a probe of a single layer has: its own input.
  double own() const {
    return spec.per_layer_input ? per_element * static_cast<double>(spec.per_layer_input->size) : 0;
  }
};

struct Vocabularies {
  int64_t small, large, full;
};

double steps_between(int64_t small, int64_t large) {
  return static_cast<double>(std::max<int64_t>(1, large - small));
}

// Sets the last block's bytes, and adds to the first one's, from probes with two small
// vocabularies.
void extend_vocabulary(engine::ChainBytes& chain, const std::vector<engine::ProbedBlock>& small,
                       const std::vector<engine::ProbedBlock>& large, const Vocabularies& sizes) {
  const double steps = steps_between(sizes.small, sizes.large);
  for (engine::Growth engine::BlockBytes::*bytes : kAll) {
    const engine::Growth &min_growth = small.back().bytes.*bytes,
                         &max_growth = large.back().bytes.*bytes;
    const engine::Growth each{.fixed = (max_growth.fixed - min_growth.fixed) / steps,
                              .per_token = (max_growth.per_token - min_growth.per_token) / steps};
    const double first_each =
        ((large.front().bytes.*bytes).fixed - (small.front().bytes.*bytes).fixed) / steps;
    (chain.first.*bytes).fixed += first_each * static_cast<double>(sizes.full - sizes.large);
    chain.last.*bytes = {
        .fixed = min_growth.fixed + each.fixed * static_cast<double>(sizes.full - sizes.small),
        .per_token = min_growth.per_token - each.per_token * static_cast<double>(sizes.small)};
    (chain.chunked.*bytes).per_token = each.per_token * static_cast<double>(sizes.full);
  }
}

// `length`: of the row to run.
ProbedChain probe_chain(const RunPlan& plan, int64_t length) {
  const engine::ProbeOptions options = {.length = length,
                                        .dtype = zero::working_dtype(plan.config),
                                        .gradients = plan.estimate.grad_buffer_dtype,
                                        .trains = plan.trains(),
                                        .times = plan.config.pipeline.is_on()};
  const auto tensor_parallel = engine::fake_tensor_parallel(plan.config);
  // `inputs`: those of so many layers are computed by the first block.
  const auto probe = [&](int64_t vocab_size, const std::vector<model::LayerSpec>& layers,
                         int64_t inputs = 1) {
    model::ModelSpec spec = plan.spec;
    spec.vocab_size = vocab_size;
    if (spec.per_layer_input)
      spec.per_layer_input = {vocab_size, inputs * spec.per_layer_input->size};
    if (layers.empty()) spec.per_layer_input.reset();
    spec.num_layers = std::ssize(layers);
    spec.layers = layers;
    return engine::probe_blocks(build_blocks(plan, spec, tensor_parallel), options);
  };
  const int64_t vocabulary = plan.spec.vocab_size;
  // Round up to a size that the ranks can share evenly.
  const int64_t ranks = engine::grid_shape(plan.config, plan.num_ranks)[comm::MeshDim::kTp];
  const auto even = [ranks](int64_t size) { return (size + ranks - 1) / ranks * ranks; };
  const int64_t large = even(std::min(vocabulary, kProbeVocabulary)), small = even((large + 1) / 2);
  const LayerKinds kinds = layer_kinds(plan.spec);
  auto large_probe = probe(large, {kinds.kinds.front()}), small_probe = probe(small, {});
  if (plan.spec.per_layer_input) {
    for (auto& [size, probes] : {std::pair(large, &large_probe), std::pair(small, &small_probe)})
      probes->front() = probe(size, {kinds.kinds.front()}, plan.spec.num_layers).front();
  }
  engine::ChainBytes chain;
  chain.first = large_probe.front().bytes;  // the factor of an adapter has a gradient as long
  chain.middle = large_probe[1].bytes;
  extend_vocabulary(chain, small_probe, large_probe, {small, large, vocabulary});
  const model::VocabShard own(vocabulary, tensor_parallel);
  chain.chunk_tokens = model::default_chunk_rows(plan.device, options.dtype, own.max_local_size);
  std::vector<double> times(static_cast<size_t>(plan.spec.num_layers) + 2);
  const CarriedBytes carried{
      plan.spec, ranks,
      static_cast<double>(c10::elementSize(options.dtype)) / static_cast<double>(ranks)};
  std::vector<engine::ProbedBlock> probes = {large_probe[1]};
  for (size_t kind = 1; kind < kinds.kinds.size(); ++kind)
    probes.push_back(probe(small, {kinds.kinds[kind]})[1]);
  for (size_t layer = 0; layer < kinds.of_layer.size(); ++layer) {
    const engine::ProbedBlock& alike = probes[kinds.of_layer[layer]];
    const auto index = static_cast<int64_t>(layer);
    chain.layers.push_back(alike.bytes);
    add_carried(chain.layers.back(), carried.into(index) - carried.own(), carried.into(index + 1));
    times[layer + 1] = alike.seconds_per_token;
  }
  times.front() = large_probe.front().seconds_per_token;
  const double few = small_probe.back().seconds_per_token,
               many = large_probe.back().seconds_per_token;
  times.back() = std::max(many, few + (many - few) / steps_between(small, large) *
                                          static_cast<double>(vocabulary - small));
  return {std::move(chain), std::move(times)};
}

// Returns the memory of the forms of the run that train adapters and that it does not have already:
// its own adapters, or the usual ones.
std::vector<engine::AdapterMemory> adapter_memory(const RunPlan& plan, int local_ranks,
                                                  engine::EstimateOptions options) {
  std::vector<engine::AdapterMemory> forms;
  options.saves_frozen = false;
  for (const bool quantizes : {false, true}) {
    const bool can_quantize = !plan.spec.quantization && !plan.spec.conv1d;
    if (quantizes ? !can_quantize : plan.adapter.has_value()) continue;
    model::ModelSpec spec = plan.spec;
    if (quantizes) spec.quantization = model::QuantizationSpec{.double_quant = true};
    constexpr int64_t kRank = 16;  // of --use_peft
    try {
      const model::LoraPlan adapters =
          plan.adapter ? plan.adapter->plan : model::plan_lora(spec, {.enabled = true, .r = kRank});
      const model::Blocks blocks =
          build_blocks(spec, adapters, engine::fake_tensor_parallel(plan.config));
      forms.push_back(
          {.flags =
               quantizes ? "--use_peft --load_in_4bit --use_bnb_nested_quant true" : "--use_peft",
           .memory = engine::run_memory(blocks, plan.config, options, local_ranks).memory});
    } catch (const Error&) {
      // This form is not possible with the model or the ranks: there is nothing to advise.
    }
  }
  return forms;
}

}  // namespace

engine::MemoryEstimate estimate_memory(const ResolvedRun& run) {
  const engine::EstimateOptions options = estimate_options(run);
  engine::MemoryEstimate estimate = engine::estimate_memory(plan_blocks(run), run.config, options);
  if (run.spec.quantization) {
    model::ModelSpec plain = run.spec;
    plain.quantization.reset();
    const model::Blocks blocks = build_blocks(run, plain, engine::fake_tensor_parallel(run.config));
    estimate.num_parameters =
        engine::count_parameters(engine::plan_of(blocks, run.config, options));
  }
  return estimate;
}

engine::RunMemory run_memory(const RunPlan& plan, int local_ranks) {
  engine::RunMemory run =
      engine::run_memory(plan_blocks(plan), plan.config, estimate_options(plan), local_ranks);
  run.with_adapters = [&plan, local_ranks](const engine::EstimateOptions& options) {
    return adapter_memory(plan, local_ranks, options);
  };
  return run;
}

std::string describe_pipeline(const RunPlan& plan, const engine::RunMemory& memory) {
  return engine::describe_pipeline(plan_blocks(plan), plan.config, memory.options.block_times);
}

engine::MicroBatchSize measure_activations(const RunPlan& plan) {
  const int64_t row_tokens = max_row_length(plan.samples.train, plan);
  const int64_t eval_row_tokens = max_row_length(plan.samples.eval, plan);
  ProbedChain chain = probe_chain(plan, std::max(row_tokens, eval_row_tokens));
  return {.chain = std::move(chain.bytes),
          .row_tokens = row_tokens,
          .eval_tokens = plan.eval_partition(0).micro_batch * eval_row_tokens,
          .block_times = std::move(chain.block_times)};
}

}  // namespace zeroth::trainer
