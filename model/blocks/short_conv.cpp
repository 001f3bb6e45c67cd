#include "model/blocks/short_conv.h"

#include <utility>
#include <vector>

#include "model/blocks/main_grad.h"
#include "model/kernels/sequence_kernels.h"

namespace zeroth::model {

using torch::Tensor;

ShortConv::ShortConv(const ModelSpec& spec, std::shared_ptr<SequenceTables> tables,
                     TensorParallelPtr tp)
    : tp_(std::move(tp)),
      full_channels_(spec.hidden_size),
      channels_(full_channels_ / tp_size(tp_)),
      first_channel_(tp_ ? tp_->rank() * channels_ : 0),
      tables_(std::move(tables)) {
  const bool has_bias = spec.short_conv->bias;
  const auto product = [&](const char* name, int64_t out, const WeightShard& shard) {
    return register_module(
        name, std::make_shared<Linear>(LinearShape{.in = spec.hidden_size,
                                                   .out = out,
                                                   .bias = has_bias,
                                                   .shard = shard,
                                                   .tp = tp_,
                                                   .quantization = spec.quantization}));
  };
  const auto part = [&](int64_t index) -> WeightShard {
    return {.style = ParallelStyle::kColwise,
            .begin = index * full_channels_ + first_channel_,
            .extent = channels_,
            .full_size = 3 * full_channels_,
            .product = "in"};
  };
  if (tp_) {
    b_ = product("b", full_channels_, part(0));
    c_ = product("c", full_channels_, part(1));
    v_ = product("v", full_channels_, part(2));
  } else {
    in_ = product("in", 3 * full_channels_, {});
  }
  const auto depthwise = register_module("depthwise", std::make_shared<torch::nn::Module>());
  weight_ = depthwise->register_parameter(
      "weight", meta_parameter({channels_, 1, spec.short_conv->kernel_size}));
  if (has_bias) bias_ = depthwise->register_parameter("bias", meta_parameter({channels_}));
  const WeightShard rows = {.style = ParallelStyle::kRowwise,
                            .begin = first_channel_,
                            .extent = channels_,
                            .full_size = full_channels_};
  output_ = product("out", full_channels_, tp_ ? rows : WeightShard());
}

Splits ShortConv::splits(const std::string& prefix) const {
  Splits splits;
  if (!tp_) return splits;
  const std::string weight = prefix + "depthwise.weight", bias = prefix + "depthwise.bias";
  splits[weight] = {weight, {full_channels_, 1, weight_.size(2)}, {first_channel_, 0, 0}};
  if (bias_.defined()) splits[bias] = {bias, {full_channels_}, {first_channel_}};
  return splits;
}

Tensor ShortConv::mix(const Tensor& x, const MicroBatch& batch) {
  std::vector<Tensor> y =
      in_ ? linear(x, *in_, batch).chunk(3, -1) : linear(x, {b_.get(), c_.get(), v_.get()}, batch);
  for (Tensor& part : y) part = unflatten_tokens(part, batch.tokens, tp_);
  Tensor mixed = causal_conv(y[0] * y[2], deliver_grad(weight_),
                             {.first_keys = tables_->first_keys.get(batch.first_keys, x.device())});
  if (bias_.defined()) mixed = mixed + deliver_grad(bias_);
  const Tensor gated = y[1] * mixed;
  return flatten_tokens(gated, tp_);
}

}  // namespace zeroth::model
