#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/units.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/adapter_files.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/lora_model.h"
#include "model/hf/model_directory.h"
#include "model/hf/model_writer.h"
#include "model/hf/nf4_source.h"
#include "model/hf/output_directory.h"
#include "model/hf/safetensors.h"
#include "trainer/flags/flags.h"
#include "trainer/run_adapter.h"

namespace zeroth::trainer {
namespace {

class Merge {
 public:
  Merge(model::WeightSource& values, const model::LoraPlan& plan, bool conv1d)
      : values_(values), plan_(plan), conv1d_(conv1d) {}

  // Returns a parameter [..] in fp32, with its adapter if it has one.
  torch::Tensor value(const std::string& name, const std::vector<int64_t>& shape) const {
    const torch::Tensor weight = read(name, shape);
    const std::string module = model::module_of(name);
    const auto adapter = plan_.modules.find(module);
    if (adapter == plan_.modules.end() || name != model::matrix_of(module)) return weight;
    const auto& [r, scale] = adapter->second;
    const bool out_in = !model::is_embedding(module) && (module == "head" || !conv1d_);
    const int64_t out = shape[out_in ? 0 : 1], in = shape[out_in ? 1 : 0];
    const torch::Tensor a = read(module + ".lora_A", {r, in}),
                        b = read(module + ".lora_B", {out, r});
    torch::Tensor target = out_in ? weight : weight.t();
    target.addmm_(b, a, /*beta=*/1, scale);
    return weight;
  }

 private:
  torch::Tensor read(const std::string& name, const std::vector<int64_t>& shape) const {
    const TensorSlice whole = TensorSlice::full(shape);
    const torch::Tensor values = torch::empty({whole.elements()}, torch::kFloat);
    values_.check(name, shape);
    values_.read({name, whole}, values);
    return values.view(shape);
  }

  model::WeightSource& values_;
  const model::LoraPlan& plan_;
  bool conv1d_;  // products of layers have weights [in, out]
};

// Returns the weights of the base as the adapter saw them.
std::unique_ptr<model::WeightSource> open_base(const std::string& directory,
                                               const std::string& adapter,
                                               const model::ModelSpec& base) {
  model::ModelSpec spec = base;
  if (!spec.quantization) spec.quantization = model::read_adapter_quantization(adapter);
  if (!spec.quantization) return model::open_weights(directory, spec, /*seed=*/0);
  if (spec.conv1d)
    throw Error("{} was trained over NF4, which {} does not have", adapter, directory);
  const auto dtype = model::parse_torch_dtype(spec.quantization->dtype).value_or(torch::kFloat);
  return model::make_dequantized_source(
      spec, model::open_weights(directory, spec, /*seed=*/0, dtype), dtype);
}

}  // namespace

std::string merge_adapter(const Flags& flags) {
  const torch::NoGradGuard no_grad;
  const std::string directory = model::find_model_directory(flags.model).string();
  model::check_model_directory(directory);
  if (!model::has_weights(directory)) throw Error("{} holds no weights to merge into", directory);
  model::OutputDirectory::cleanup_leftovers(flags.output);
  model::OutputDirectory::check(flags.output, flags.overwrite);
  const model::ModelSpec spec = model::read_model_spec(directory);
  const model::AdapterConfig config = model::read_adapter_config(flags.adapter);
  model::LoraPlan plan = model::plan_lora(spec, config.lora);
  // An adapter of embedding or head adds to one use of a weight that they share.
  const bool adds_to_one = plan.modules.contains("embedding") || plan.modules.contains("head");
  plan.unties_head = plan.unties_head || (spec.tie_word_embeddings && adds_to_one);
  auto base = open_base(directory, flags.adapter, spec);
  auto trained = model::open_adapter(flags.adapter, spec, plan);
  model::check_base_tables(flags.adapter, spec, plan, *base);
  const auto source =
      model::make_lora_source(plan, std::move(base), std::move(trained), /*seed=*/0);
  model::ModelSpec merged = model::lora_spec(spec, plan);
  merged.quantization.reset();
  const model::Blocks blocks = model::build_blocks(merged);
  std::vector<model::PlannedTensor> parameters;
  for (const auto& block : blocks) {
    const std::vector<std::string> in_fp32 = block->keep_in_fp32();
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->label() + "." + item.key();
      const bool tied = name == "head.weight" && merged.tie_word_embeddings;
      const bool keep_in_fp32 = std::ranges::count(in_fp32, item.key()) > 0;
      if (!tied) parameters.push_back({name, item.value().sizes().vec(), keep_in_fp32});
    }
  }
  model::ModelWriter writer({.source = directory,
                             .output = flags.output,
                             .chat_template = flags.records.chat_template,
                             .spec = merged,
                             .unties_head = plan.unties_head,
                             .dtype = flags.save_dtype.value_or(
                                 model::parse_torch_dtype(spec.dtype).value_or(torch::kFloat)),
                             .overwrite = flags.overwrite},
                            parameters);
  const Merge merge(*source, plan, spec.conv1d);
  for (const model::PlannedTensor& parameter : parameters)
    writer.write(parameter.name, merge.value(parameter.name, parameter.shape));
  const auto previous = writer.commit();
  return fmt::format("{}: {} with the adapter {} in {}{}\n", flags.output, flags.model,
                     flags.adapter, pluralize(plan.modules.size(), "module"),
                     plan.unties_head ? "; the head has a weight of its own" : "");
}

}  // namespace zeroth::trainer
