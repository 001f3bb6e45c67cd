#include "model/blocks/embedding.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "model/custom_function.h"
#include "model/kernels/fused.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

constexpr int64_t kNoPadding = -1;

// Returns dy, with zeros where `excluded` is set, also in place of values that are not finite.
Tensor zero_excluded(const Tensor& dy, const Tensor& excluded) {
  return dy.masked_fill(excluded.unsqueeze(-1), 0);
}

// Delivers the gradient of these columns of a factor A, or returns it if no view is open.
Tensor add_to_columns(const Tensor& a, const Tensor& columns, const Tensor& dy) {
  const Tensor sums = at::zeros({a.size(1), a.size(0)}, dy.options().dtype(torch::kFloat));
  add_rows_(sums, columns.reshape({-1}), dy.reshape({-1, a.size(0)}).to(torch::kFloat));
  return accumulate_grad(a, sums.t());
}

// Delivers the gradient of these rows of a table, or returns it if no view is open.
Tensor add_to_rows(const Tensor& table, const Tensor& rows, const Tensor& dy) {
  if (defer_grad(table, [=] { add_to_rows(table, rows, dy); })) return {};
  const Tensor grad_view = main_grad(table);
  Tensor gradient = grad_view.defined() ? grad_view : at::zeros(table.sizes(), dy.options());
  if (grad_view.defined() && is_unwritten(grad_view)) gradient.zero_();
  add_rows_(gradient, rows.reshape({-1}), dy.reshape({-1, table.size(1)}));
  return grad_view.defined() ? Tensor() : gradient;
}

enum class TableLayout { kRows, kColumns };  // of a token's vector

// EmbeddingLookup returns rows of a table, or columns of a factor A: inputs are the table and the
// tokens. If ranks split the vocabulary, it maps tokens [n] to this rank's shard of their vectors,
// each from the one rank that has it. The backward adds the gradient of a row in place and rounds
// its sum once: there is no table-sized temporary if a gradient view is open, but for the narrow
// factor. The vector of the token `padding` gets none.
class EmbeddingLookup final : public CustomFunction {
 public:
  EmbeddingLookup(VocabShard vocabulary, int64_t padding, TableLayout layout)
      : vocabulary_(std::move(vocabulary)), padding_(padding), layout_(layout) {}

  TensorVector forward(const FunctionContext& context, const TensorVector& inputs) override {
    const Tensor& tokens = inputs[1];
    const Tensor table = layout_ == TableLayout::kRows ? inputs[0] : inputs[0].t();
    if (!vocabulary_.tp) {
      context.save_for_backward(inputs);
      return {at::embedding(table, tokens)};
    }
    const auto [rows, is_local] = vocabulary_.local_rows(tokens);
    Tensor excluded = is_local.logical_not();
    if (padding_ != kNoPadding) excluded.logical_or_(tokens.eq(padding_));
    context.save_for_backward({inputs[0], rows, excluded});
    const Tensor found = at::embedding(table, rows).mul_(is_local.unsqueeze(1));
    return {vocabulary_.tp->reduce_scatter(pad_to_shards(found, *vocabulary_.tp), "embeddings")};
  }

  TensorVector backward(const FunctionContext& context, TensorVector grads) const override {
    const TensorVector saved = context.saved();
    const Tensor& rows = saved[1];
    Tensor dy = grads[0];
    if (vocabulary_.tp) {
      dy = vocabulary_.tp->all_gather(dy, "gradients of embeddings").narrow(0, 0, rows.size(0));
      dy = zero_excluded(dy, saved[2]);
    } else if (padding_ != kNoPadding) {
      dy = zero_excluded(dy, rows.eq(padding_));
    }
    const auto add = layout_ == TableLayout::kRows ? add_to_rows : add_to_columns;
    return {add(saved[0], rows, dy), Tensor()};
  }

 private:
  VocabShard vocabulary_;
  int64_t padding_;
  TableLayout layout_;
};

Tensor embed(const Tensor& table, const std::optional<LoraAdapter>& adapter, const Tensor& tokens,
             const VocabShard& vocabulary, int64_t padding) {
  const auto look_up = [&](const Tensor& from, TableLayout layout) {
    return apply_function(std::make_shared<EmbeddingLookup>(vocabulary, padding, layout),
                          {from, tokens})[0];
  };
  const Tensor y = look_up(table, TableLayout::kRows);
  if (!adapter) return y;
  const auto& [a, b] = adapter->factors;
  return y + project(look_up(a, TableLayout::kColumns).mul(adapter->scale), b);
}

// Returns y times a factor that is rounded to its dtype.
Tensor times_rounded(const Tensor& y, double factor) {
  return y * at::full({}, factor, y.options());
}

}  // namespace

VocabShard::VocabShard(int64_t size, TensorParallelPtr tensor_parallel)
    : full_size(size),
      begin(0),
      local_size(size),
      max_local_size(size),
      tp(std::move(tensor_parallel)) {
  if (!tp) return;
  max_local_size = (full_size + tp->size() - 1) / tp->size();
  begin = std::min(full_size, tp->rank() * max_local_size);
  local_size = std::min(full_size - begin, max_local_size);
}

std::optional<Splits> VocabShard::splits(const std::string& name, const Tensor& parameter,
                                         int64_t dim) const {
  if (!tp) return std::nullopt;
  const auto extents = parameter.sizes().vec();
  Split split{name, extents, std::vector<int64_t>(extents.size()), /*num_replicas=*/1};
  split.max_numel = max_local_size * (parameter.numel() / parameter.size(dim));
  split.shape[static_cast<size_t>(dim)] = full_size;
  split.begin[static_cast<size_t>(dim)] = begin;
  return Splits{{name, split}};
}

VocabShard::LocalRows VocabShard::local_rows(const torch::Tensor& tokens) const {
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [smallest_token, largest_token] = at::aminmax(tokens);
    const int64_t low = smallest_token.item<int64_t>(), high = largest_token.item<int64_t>();
    if (low < 0 || high >= full_size)
      throw Error("token {} is outside of the vocabulary of {}", low < 0 ? low : high, full_size);
  }
  const torch::Tensor rows = tokens - begin;
  const torch::Tensor is_local = rows.ge(0).logical_and_(rows.lt(local_size));
  return {rows.mul(is_local), is_local};
}

PerLayerInputs::PerLayerInputs(const ModelSpec& spec, TensorParallelPtr tp)
    : vocab_shard_(spec.per_layer_input->vocab_size, tp),
      size_(spec.per_layer_input->size),
      padding_token_(spec.padding_token) {
  const int64_t all = spec.num_layers * size_;
  weight_ = register_parameter("weight", meta_parameter({vocab_shard_.local_size, all}));
  projection_ = register_module(
      "projection", std::make_shared<Linear>(LinearShape{.in = spec.hidden_size,
                                                         .out = all,
                                                         .tp = std::move(tp),
                                                         .quantization = spec.quantization}));
  norm_ = register_module("norm", std::make_shared<Norm>(spec.norm, size_));
}

Tensor PerLayerInputs::forward(const Tensor& embeddings, const MicroBatch& batch) const {
  const auto root = [](int64_t size) { return std::sqrt(static_cast<double>(size)); };
  const Tensor rows = embed(weight_, {}, vocab_shard_.tp ? batch.tokens.flatten() : batch.tokens,
                            vocab_shard_, padding_token_);
  const Tensor products = linear(embeddings, *projection_, batch) * (1 / root(embeddings.size(-1)));
  const Tensor projected = norm_->forward(products.unflatten(-1, {-1, size_})).flatten(-2);
  return (projected + times_rounded(rows, root(size_))) * (1 / std::numbers::sqrt2);
}

std::optional<Splits> PerLayerInputs::splits(const std::string& prefix) const {
  return vocab_shard_.splits(prefix + "weight", weight_, /*dim=*/0);
}

Embedding::Embedding(const ModelSpec& spec, TensorParallelPtr tp)
    : Block("embedding"),
      vocab_shard_(spec.vocab_size, std::move(tp)),
      padding_token_(spec.padding_token),
      multiplier_(spec.embedding_multiplier),
      rounds_multiplier_(spec.rounds_embedding_multiplier),
      position_offset_(spec.position_offset),
      dropout_(make_dropout_site(spec.embedding_dropout, label())) {
  weight_ =
      register_parameter("weight", meta_parameter({vocab_shard_.local_size, spec.hidden_size}));
  if (spec.learned_positions) {
    positions_ = register_parameter(
        "positions", meta_parameter({spec.position_offset + spec.max_positions, spec.hidden_size}));
  }
  if (spec.embedding_norm)
    norm_ = register_module("norm", std::make_shared<Norm>(spec.norm, spec.hidden_size));
  if (spec.per_layer_input)
    per_layer_ =
        register_module("per_layer", std::make_shared<PerLayerInputs>(spec, vocab_shard_.tp));
}

void Embedding::add_adapter(int64_t r, double scale) {
  const Tensor a = register_parameter("lora_A", meta_parameter({r, weight_.size(0)}));
  const Tensor b = register_parameter("lora_B", meta_parameter({weight_.size(1), r}));
  adapter_ = LoraAdapter{{a, b}, scale};
}

void Embedding::add_positions_adapter(int64_t r, double scale) {
  const auto factors = register_module("positions", std::make_shared<torch::nn::Module>());
  const Tensor a = factors->register_parameter("lora_A", meta_parameter({r, positions_.size(0)}));
  const Tensor b = factors->register_parameter("lora_B", meta_parameter({positions_.size(1), r}));
  positions_adapter_ = LoraAdapter{{a, b}, scale};
}

std::optional<Splits> Embedding::splits() const {
  std::optional<Splits> splits = vocab_shard_.splits("weight", weight_, /*dim=*/0);
  if (splits && adapter_) splits->merge(*vocab_shard_.splits("lora_A", adapter_->factors.a, 1));
  if (splits && per_layer_) splits->merge(*per_layer_->splits("per_layer."));
  return splits;
}

Tensor Embedding::forward(const Tensor&, const MicroBatch& batch) {
  const int64_t seq = batch.tokens.size(1);
  if (positions_.defined() && seq > positions_.size(0) - position_offset_) {
    throw Error("a sequence of {} tokens is longer than the model's {} positions", seq,
                positions_.size(0) - position_offset_);
  }
  const TensorParallelPtr& tp = vocab_shard_.tp;
  const int64_t first = tp ? sequence_shard(batch.tokens.numel(), *tp).first : 0;
  Tensor y = embed(weight_, adapter_, tp ? batch.tokens.flatten() : batch.tokens, vocab_shard_,
                   padding_token_);
  if (positions_.defined()) {
    y = y + embed(positions_, positions_adapter_, local_positions(batch) + position_offset_,
                  VocabShard(positions_.size(0)), kNoPadding);
  }
  if (multiplier_ != 1 && !rounds_multiplier_) y = y * multiplier_;
  if (multiplier_ != 1 && rounds_multiplier_) y = times_rounded(y, multiplier_);
  if (norm_) y = norm_->forward(y);
  y = dropout(y, dropout_, batch, first);
  return per_layer_ ? at::cat({y, per_layer_->forward(y, batch)}, -1) : y;
}

Tensor Embedding::local_positions(const MicroBatch& batch) const {
  const int64_t seq = batch.tokens.size(1);
  if (!vocab_shard_.tp) {
    return batch.positions.defined() ? batch.positions
                                     : torch::arange(seq, batch.tokens.options()).unsqueeze(0);
  }
  const SequenceShard shard = sequence_shard(batch.tokens.numel(), *vocab_shard_.tp);
  const int64_t last = batch.tokens.numel() - 1;
  const Tensor tokens =
      torch::arange(shard.first, shard.first + shard.rows, batch.tokens.options()).clamp_max_(last);
  return batch.positions.defined() ? batch.positions.flatten().index_select(0, tokens)
                                   : tokens.remainder(seq);
}

}  // namespace zeroth::model
