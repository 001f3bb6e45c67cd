#include "model/spec.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/hf/families/family.h"

namespace zeroth::model {
namespace {

// Returns the tokens that a token sees, itself included, as the mean over a sequence. window 0
// means all before it.
double mean_attended_tokens(int64_t seq, int64_t window) {
  const auto length = static_cast<double>(seq);
  const auto max_attended = static_cast<double>(window > 0 ? std::min(window, seq) : seq);
  return (max_attended * (max_attended + 1) / 2 + (length - max_attended) * max_attended) / length;
}

// Returns the same for a token that sees those of its chunk.
double mean_attended_in_chunks(int64_t seq, int64_t chunk) {
  const int64_t whole = seq / chunk, rest = seq % chunk;
  const double of_whole = static_cast<double>(whole * chunk) * mean_attended_tokens(chunk, 0);
  const double of_rest = rest > 0 ? static_cast<double>(rest) * mean_attended_tokens(rest, 0) : 0;
  return (of_whole + of_rest) / static_cast<double>(seq);
}

// Return the weights of products that a token passes.
double attention_weights(const ModelSpec& spec, int64_t index) {
  const LayerSpec& layer = spec.layer(index);
  const auto hidden = static_cast<double>(spec.hidden_size);
  const auto queries = static_cast<double>(spec.num_heads * spec.layer_head_dim(index));
  const auto keys = static_cast<double>(spec.layer_kv_heads(index) * spec.layer_head_dim(index));
  const int products_of_keys = layer.kv_layer ? 0 : layer.k_is_v ? 1 : 2;
  if (!spec.latent)
    return hidden * ((spec.gated_attention ? 3 : 2) * queries + products_of_keys * keys);
  const LatentSpec& latent = *spec.latent;
  const auto q_rank = static_cast<double>(latent.q_rank),
             kv_rank = static_cast<double>(latent.kv_rank);
  const auto values = static_cast<double>(spec.num_heads * latent.v_dim);
  const double q = q_rank > 0 ? q_rank * (hidden + queries) : hidden * queries;
  const auto shared = static_cast<double>(latent.rope_dim);
  const auto kept = static_cast<double>(spec.num_heads * latent.nope_dim);
  return q + hidden * (kv_rank + shared) + kv_rank * (kept + values) + hidden * values;
}

double delta_net_weights(const ModelSpec& spec) {
  const DeltaNetSpec& net = *spec.delta_net;
  // q, k, v, z and the output; b and a.
  const int64_t channels = 2 * net.key_heads * net.key_dim + 3 * net.value_heads * net.value_dim;
  return static_cast<double>(spec.hidden_size) *
         static_cast<double>(channels + 2 * net.value_heads);
}

double mlp_weights(const ModelSpec& spec, int64_t index) {
  double mlp = 0;
  if (spec.has_mlp(index))
    mlp = (spec.gated_mlp ? 3 : 2) * static_cast<double>(spec.mlp_size(index));
  if (spec.layer(index).experts) {
    const ExpertsSpec& experts = *spec.experts;
    mlp += 3 * static_cast<double>(experts.top_k * experts.intermediate_size +
                                   experts.shared_intermediate_size) +
           static_cast<double>(experts.num_experts) + (experts.shared_gate ? 1 : 0);
  }
  if (spec.per_layer_input) mlp += 2 * static_cast<double>(spec.per_layer_input->size);
  return static_cast<double>(spec.hidden_size) * mlp;
}

// Returns operations of a layer's forward per token that mix tokens.
double attention_flops(const ModelSpec& spec, int64_t index, int64_t seq) {
  const LayerSpec& layer = spec.layer(index);
  const int64_t head_dim = spec.layer_head_dim(index);
  const int64_t v_dim = spec.latent ? spec.latent->v_dim : head_dim;
  const double channels = static_cast<double>(spec.num_heads * (head_dim + v_dim)) / 2;
  return 4 * channels *
         (layer.chunk > 0 ? mean_attended_in_chunks(seq, layer.chunk)
                          : mean_attended_tokens(seq, layer.window));
}

double delta_net_flops(const DeltaNetSpec& net) {
  return 6 * static_cast<double>(net.value_heads * net.key_dim * net.value_dim);
}

double mixer_flops(const ModelSpec& spec, int64_t index, int64_t seq) {
  const LayerSpec& layer = spec.layer(index);
  if (layer.mixer == LayerMixer::kDeltaNet)
    return 2 * delta_net_weights(spec) + delta_net_flops(*spec.delta_net);
  if (layer.mixer == LayerMixer::kShortConv) {
    const auto hidden = static_cast<double>(spec.hidden_size);
    return 2 * 4 * hidden * hidden;  // two gates, what they gate, and the output
  }
  return 2 * attention_weights(spec, index) + attention_flops(spec, index, seq);
}

}  // namespace

const LayerSpec& ModelSpec::layer(int64_t index) const {
  ZEROTH_CHECK(index >= 0 && index < num_layers, "layer {} of {}", index, num_layers);
  static const LayerSpec kDefault;
  return layers.empty() ? kDefault : layers.at(static_cast<size_t>(index));
}

double ModelSpec::score_scale(int64_t index) const {
  return layer(index).score_scale.value_or(1 /
                                           std::sqrt(static_cast<double>(layer_head_dim(index))));
}

int64_t ModelSpec::layer_head_dim(int64_t index) const {
  return layer(index).head_dim.value_or(head_dim);
}

int64_t ModelSpec::layer_kv_heads(int64_t index) const {
  return layer(index).num_kv_heads.value_or(num_kv_heads);
}

bool ModelSpec::has_mlp(int64_t index) const {
  return !layer(index).experts || experts->beside_mlp;
}

int64_t ModelSpec::mlp_size(int64_t index) const {
  return layer(index).intermediate_size.value_or(intermediate_size);
}

CarriedStates carried_states(const ModelSpec& spec, int64_t index) {
  CarriedStates carried;
  if (spec.per_layer_input) carried.per_layer_inputs = spec.num_layers - index;
  for (int64_t user = index; user < spec.num_layers; ++user) {
    const auto& kv_layer = spec.layer(user).kv_layer;
    if (!kv_layer || *kv_layer >= index) continue;
    if (std::ranges::find(carried.kv_layers, *kv_layer) == carried.kv_layers.end())
      carried.kv_layers.push_back(*kv_layer);
  }
  return carried;
}

std::vector<int64_t> input_sizes(const ModelSpec& spec, int64_t index, int64_t ranks) {
  const CarriedStates carried = carried_states(spec, index);
  std::vector<int64_t> sizes = {spec.hidden_size};
  if (carried.per_layer_inputs > 0) sizes.push_back(spec.per_layer_input->size);
  if (carried.per_layer_inputs > 1)
    sizes.push_back((carried.per_layer_inputs - 1) * spec.per_layer_input->size);
  for (const int64_t layer : carried.kv_layers)
    sizes.push_back(2 * std::max(ranks, spec.layer_kv_heads(layer)) * spec.layer_head_dim(layer));
  return sizes;
}

void override_dropout(ModelSpec& spec, double p) {
  if (!(p >= 0 && p < 1)) throw Error("a dropout of {}, expected 0 <= p < 1", p);
  const FamilyDropouts has = family_of(spec).dropouts;
  if (has.attention) spec.attention_dropout = p;
  if (has.residual) spec.residual_dropout = p;
  if (has.embedding) spec.embedding_dropout = p;
}

std::vector<double> block_flops_per_token(const ModelSpec& spec, int64_t seq) {
  const int64_t inputs = spec.per_layer_input ? spec.num_layers * spec.per_layer_input->size : 0;
  // The embedding itself is no product.
  std::vector<double> flops = {2 * static_cast<double>(spec.hidden_size * inputs)};
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    flops.push_back(mixer_flops(spec, layer, seq) + 2 * mlp_weights(spec, layer));
  flops.push_back(2 * static_cast<double>(spec.vocab_size * spec.hidden_size));
  return flops;
}

double flops_per_token(const ModelSpec& spec, int64_t seq) {
  const std::vector<double> forward = block_flops_per_token(spec, seq);
  return 3 * std::accumulate(forward.begin(), forward.end(), 0.0);
}

}  // namespace zeroth::model
