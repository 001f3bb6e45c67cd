#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/blocks/linear.h"
#include "model/blocks/main_grad.h"
#include "model/weight_source.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

// Adds the splits of an adapter's factors. The one that no rank splits needs an entry only if its
// product has another name in checkpoints.
void add_adapter_splits(const Linear& layer, const std::string& path, const std::string& full_name,
                        Splits& splits) {
  const auto& [a, b] = layer.adapter->factors;
  const WeightShard& shard = layer.shard;
  const int64_t r = a.size(0);
  if (shard.style == ParallelStyle::kRowwise) {
    splits[path + ".lora_A"] = {
        full_name + ".lora_A", {r, shard.full_size}, {0, shard.begin}, shard.num_replicas};
    return;
  }
  splits[path + ".lora_B"] = {
      full_name + ".lora_B", {shard.full_size, r}, {shard.begin, 0}, shard.num_replicas};
  if (path != full_name) {
    splits[path + ".lora_A"] = {full_name + ".lora_A", a.sizes().vec(), {0, 0}, layer.tp->size()};
  }
}

}  // namespace

Linear::Linear(const LinearShape& shape)
    : in(shape.shard.style == ParallelStyle::kRowwise ? shape.shard.extent : shape.in),
      out(shape.shard.style == ParallelStyle::kColwise ? shape.shard.extent : shape.out),
      layout(shape.layout),
      shard(shape.shard),
      tp(shape.tp) {
  if (shape.quantization) {
    register_nf4(shape);
  } else {
    const bool out_in = layout == WeightLayout::kOutIn;
    weight = register_parameter("weight", meta_parameter({out_in ? out : in, out_in ? in : out}));
  }
  if (shape.bias) bias = register_parameter("bias", meta_parameter({out}));
}

void Linear::register_nf4(const LinearShape& shape) {
  ZEROTH_CHECK(layout == WeightLayout::kOutIn, "NF4 needs weights [out, in]");
  const QuantizationSpec& quantization = *shape.quantization;
  const auto bytes = [&](const char* name, at::IntArrayRef sizes) {
    return register_parameter(name,
                              torch::empty(sizes, torch::dtype(torch::kByte).device(torch::kMeta)),
                              /*requires_grad=*/false);
  };
  const int64_t scale = quantization.double_quant ? 1 : sizeof(float);  // bytes
  QuantizedWeight own{.scales = {}, .dtype = parse_torch_dtype(quantization.dtype)};
  if (shape.in % kNf4Block == 0) {
    const int64_t per_row = in / kNf4Block, row_step = shape.in / kNf4Block;
    const bool by_inputs = shard.style == ParallelStyle::kRowwise;
    own.scales.place = {.first = by_inputs ? shard.begin / kNf4Block : shard.begin * row_step,
                        .per_row = per_row,
                        .row_step = row_step};
    weight = bytes("weight", {out, in / 2});
    own.scales.absmax = bytes("weight_absmax", {out, per_row * scale});
  } else {
    ZEROTH_CHECK(shard.style == ParallelStyle::kNone, "{} inputs in NF4 cannot be split", shape.in);
    const int64_t blocks = nf4_blocks(out * in);
    own.scales.place = {.first = 0, .per_row = blocks, .row_step = blocks};
    weight = bytes("weight", {(out * in + 1) / 2});
    own.scales.absmax = bytes("weight_absmax", {blocks * scale});
  }
  if (quantization.double_quant) {
    const int64_t all_rows = shard.style == ParallelStyle::kColwise ? shard.full_size : shape.out;
    const int64_t groups = nested_groups(nf4_blocks(all_rows * shape.in));
    own.scales.nested_absmax =
        bytes("weight_nested_absmax", {static_cast<int64_t>(sizeof(float)) * (groups + 1)});
  }
  quantized = std::move(own);
}

void Linear::add_adapter(int64_t r, double scale, const DropoutSite& dropout, const Tensor& a) {
  const Tensor own = a.defined() ? a : meta_parameter({r, in});
  register_parameter("lora_A", own);
  adapter =
      LoraAdapter{{own, register_parameter("lora_B", meta_parameter({out, r}))}, scale, dropout};
}

int64_t count_parameters(const torch::nn::Module& block) {
  int64_t count = 0;
  for (const Tensor& parameter : block.parameters()) {
    if (parameter.is_floating_point()) count += parameter.numel();
  }
  for (const auto& item : block.modules(/*include_self=*/false)) {
    const auto* const layer = item->as<Linear>();
    if (layer != nullptr && layer->quantized) count += layer->out * layer->in;
  }
  return count;
}

Splits linear_splits(const torch::nn::Module& block) {
  Splits splits;
  for (const auto& item : block.named_modules("", /*include_self=*/false)) {
    const auto* const layer = item.value()->as<Linear>();
    if (layer == nullptr || layer->shard.style == ParallelStyle::kNone) continue;
    const WeightShard& shard = layer->shard;
    const std::string& path = item.key();  // the product's name in its block: "attention.q"
    const std::string full_name =
        shard.product.empty() ? path : path.substr(0, path.rfind('.') + 1) + shard.product;
    const bool by_outputs = shard.style == ParallelStyle::kColwise;
    const size_t dim = by_outputs == (layer->layout == WeightLayout::kOutIn) ? 0 : 1;
    // Parts are proportional: codes and scales of a row have fewer columns than a weight.
    const auto add_split = [&, local = shard.extent](const std::string& suffix,
                                                     const Tensor& part) {
      Split split{full_name + suffix, part.sizes().vec(), {0, 0}, shard.num_replicas};
      split.shape[dim] = shard.full_size * part.size(static_cast<int64_t>(dim)) / local;
      split.begin[dim] = shard.begin * part.size(static_cast<int64_t>(dim)) / local;
      splits[path + suffix] = split;
    };
    add_split(".weight", layer->weight);
    if (layer->quantized) add_split(".weight_absmax", layer->quantized->scales.absmax);
    if (layer->bias.defined() && by_outputs) {
      splits[path + ".bias"] = {
          full_name + ".bias", {shard.full_size}, {shard.begin}, shard.num_replicas};
    }
    if (layer->adapter) add_adapter_splits(*layer, path, full_name, splits);
  }
  return splits;
}

}  // namespace zeroth::model
