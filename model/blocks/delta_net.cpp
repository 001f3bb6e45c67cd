#include "model/blocks/delta_net.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/softplus.h>

#include <utility>

#include "model/blocks/main_grad.h"
#include "model/blocks/mlp.h"
#include "model/kernels/sequence_kernels.h"

namespace zeroth::model {

using torch::Tensor;

DeltaNet::DeltaNet(const ModelSpec& spec, std::shared_ptr<SequenceTables> tables,
                   TensorParallelPtr tp)
    : spec_(*spec.delta_net),
      full_key_heads_(spec_.key_heads),
      keys_of_head_(spec_.key_dim),
      values_of_head_(spec_.value_heads / spec_.key_heads * spec_.value_dim),
      tp_(std::move(tp)),
      tables_(std::move(tables)) {
  spec_.key_heads /= tp_size(tp_);
  spec_.value_heads /= tp_size(tp_);
  first_key_head_ = tp_ ? tp_->rank() * spec_.key_heads : 0;
  A_log_ = register_parameter("A_log", meta_parameter({spec_.value_heads}));
  dt_bias_ = register_parameter("dt_bias", meta_parameter({spec_.value_heads}));
  register_products(spec);
  register_convolution();
  norm_ = register_module("norm",
                          std::make_shared<Norm>(NormSpec{.eps = spec.norm.eps}, spec_.value_dim));
  const int64_t size = full_key_heads_ * values_of_head_;
  LinearShape shape{
      .in = size, .out = spec.hidden_size, .tp = tp_, .quantization = spec.quantization};
  if (tp_) {
    shape.shard = {.style = ParallelStyle::kRowwise,
                   .begin = first_key_head_ * values_of_head_,
                   .extent = spec_.key_heads * values_of_head_,
                   .full_size = size};
  }
  output_ = register_module("o", std::make_shared<Linear>(shape));
}

void DeltaNet::register_products(const ModelSpec& spec) {
  // A product has so many rows for each key head. Those of ranks may be a part of a `product` that
  // has `all` rows for each, `before` of them in front of these.
  const auto add = [&](const char* name, int64_t rows, int64_t before = 0, int64_t all = 0,
                       const char* product = "") {
    LinearShape shape{.in = spec.hidden_size,
                      .out = rows * full_key_heads_,
                      .tp = tp_,
                      .quantization = spec.quantization};
    if (tp_) {
      shape.shard = {.style = ParallelStyle::kColwise,
                     .begin = before * full_key_heads_ + first_key_head_ * rows,
                     .extent = spec_.key_heads * rows,
                     .full_size = (all > 0 ? all : rows) * full_key_heads_,
                     .product = product};
    }
    return register_module(name, std::make_shared<Linear>(shape));
  };
  const int64_t keys = keys_of_head_, values = values_of_head_, group = values / spec_.value_dim;
  if (spec_.fused) {
    qkvz_ = add("qkvz", 2 * keys + 2 * values);
    ba_ = add("ba", 2 * group);
    return;
  }
  const int64_t all = 2 * keys + values;
  if (tp_) {
    q_ = add("q", keys, 0, all, "qkv");
    k_ = add("k", keys, keys, all, "qkv");
    v_ = add("v", values, 2 * keys, all, "qkv");
  } else {
    qkv_ = add("qkv", all);
  }
  z_ = add("z", values);
  b_ = add("b", group);
  a_ = add("a", group);
}

void DeltaNet::register_convolution() {
  const auto module = register_module("conv", std::make_shared<torch::nn::Module>());
  const auto add = [&](const char* name, int64_t channels_of_head) {
    conv_.push_back(module->register_parameter(
        name, meta_parameter({spec_.key_heads * channels_of_head, 1, spec_.kernel})));
  };
  if (!tp_) return add("weight", 2 * keys_of_head_ + values_of_head_);
  add("q", keys_of_head_);
  add("k", keys_of_head_);
  add("v", values_of_head_);
}

Splits DeltaNet::splits(const std::string& prefix) const {
  Splits splits;
  if (!tp_) return splits;
  const int64_t heads = full_key_heads_, group = values_of_head_ / spec_.value_dim;
  for (const char* name : {"A_log", "dt_bias"})
    splits[prefix + name] = {prefix + name, {heads * group}, {first_key_head_ * group}};
  const auto add_channels = [&](const char* name, int64_t before, int64_t channels) {
    splits[prefix + name] = {prefix + "conv.weight",
                             {heads * (2 * keys_of_head_ + values_of_head_), 1, spec_.kernel},
                             {heads * before + first_key_head_ * channels, 0, 0}};
  };
  add_channels("conv.q", 0, keys_of_head_);
  add_channels("conv.k", keys_of_head_, keys_of_head_);
  add_channels("conv.v", 2 * keys_of_head_, values_of_head_);
  return splits;
}

DeltaNet::Inputs DeltaNet::project(const Tensor& x, const MicroBatch& batch) const {
  const auto of_tokens = [&](const Tensor& y) { return unflatten_tokens(y, batch.tokens, tp_); };
  const auto of_value_heads = [&](const Tensor& y) {
    return y.flatten(2).unflatten(2, {spec_.value_heads, spec_.value_dim});
  };
  if (!spec_.fused) {
    const std::vector<Tensor> y =
        tp_ ? linear(x, {q_.get(), k_.get(), v_.get(), z_.get(), b_.get(), a_.get()}, batch)
            : linear(x, {qkv_.get(), z_.get(), b_.get(), a_.get()}, batch);
    const size_t z = y.size() - 3;
    const Tensor qkv = tp_ ? at::cat({of_tokens(y[0]), of_tokens(y[1]), of_tokens(y[2])}, 2) : y[0];
    return {qkv, of_value_heads(of_tokens(y[z])), of_tokens(y[z + 1]), of_tokens(y[z + 2])};
  }
  const std::vector<Tensor> y = linear(x, {qkvz_.get(), ba_.get()}, batch);
  const int64_t keys = keys_of_head_, values = values_of_head_, group = values / spec_.value_dim;
  const auto of_key_heads = [&](const Tensor& of_all, const std::vector<int64_t>& sizes) {
    return of_tokens(of_all).unflatten(2, {spec_.key_heads, -1}).split_with_sizes(sizes, 3);
  };
  const std::vector<Tensor> qkvz = of_key_heads(y[0], {keys, keys, values, values});
  const std::vector<Tensor> ba = of_key_heads(y[1], {group, group});
  return {at::cat({qkvz[0].flatten(2), qkvz[1].flatten(2), qkvz[2].flatten(2)}, 2),
          of_value_heads(qkvz[3]), ba[0].flatten(2), ba[1].flatten(2)};
}

Tensor DeltaNet::convolution() const {
  if (conv_.size() == 1) return deliver_grad(conv_.front());
  std::vector<Tensor> parts;
  for (const Tensor& part : conv_) parts.push_back(deliver_grad(part));
  return at::cat(parts);
}

Tensor DeltaNet::mix(const Tensor& x, const MicroBatch& batch) {
  const Inputs in = project(x, batch);
  const Tensor first_keys = tables_->first_keys.get(batch.first_keys, x.device());
  const Tensor qkv = causal_conv(in.qkv, convolution(), {.first_keys = first_keys, .silu = true});
  const int64_t keys = spec_.key_heads * keys_of_head_, values = spec_.key_heads * values_of_head_;
  const std::vector<Tensor> parts = qkv.split_with_sizes({keys, keys, values}, 2);
  const Tensor steps =
      at::softplus(in.a.to(torch::kFloat) + deliver_grad(dt_bias_));  // of each head and token
  const Tensor y =
      gated_delta_rule({.q = parts[0].unflatten(2, {spec_.key_heads, spec_.key_dim}),
                        .k = parts[1].unflatten(2, {spec_.key_heads, spec_.key_dim}),
                        .v = parts[2].unflatten(2, {spec_.value_heads, spec_.value_dim}),
                        .decay = -deliver_grad(A_log_).to(torch::kFloat).exp() * steps,
                        .beta = in.b.sigmoid().to(torch::kFloat)},
                       {.first_keys = first_keys});
  const Tensor gated =
      gate_by(Activation::kSilu, in.z.contiguous(), norm_->forward(y.contiguous())).flatten(2);
  return flatten_tokens(gated, tp_);
}

}  // namespace zeroth::model
