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

double layer_weights(const ModelSpec& spec) {
  const auto hidden = static_cast<double>(spec.hidden_size);
  const auto queries = static_cast<double>(spec.num_heads * spec.head_dim);
  const auto keys = static_cast<double>(spec.num_kv_heads * spec.head_dim);
  const double mlp = (spec.gated_mlp ? 3 : 2) * static_cast<double>(spec.intermediate_size);
  return hidden * (2 * queries + 2 * keys + mlp);
}

}  // namespace

int64_t ModelSpec::layer_window(int64_t layer) const {
  ZEROTH_CHECK(layer >= 0 && layer < num_layers, "layer {} of {}", layer, num_layers);
  return sliding_window > 0 && windowed_layers[layer] ? sliding_window : 0;
}

bool ModelSpec::has_rope(int64_t layer) const {
  return !learned_positions && (rope_layers.empty() || rope_layers[layer]);
}

double ModelSpec::score_scale(int64_t layer) const {
  if (attention_multiplier) return *attention_multiplier;
  double scale = 1;
  if (scale_scores) scale /= std::sqrt(static_cast<double>(head_dim));
  if (scale_scores_by_layer) scale /= static_cast<double>(layer + 1);
  return scale;
}

void override_dropout(ModelSpec& spec, double p) {
  if (!(p >= 0 && p < 1)) throw Error("a dropout of {}, expected 0 <= p < 1", p);
  const FamilyDropouts has = family_of(spec).dropouts;
  if (has.attention) spec.attention_dropout = p;
  if (has.residual) spec.residual_dropout = p;
  if (has.embedding) spec.embedding_dropout = p;
}

std::vector<double> block_flops_per_token(const ModelSpec& spec, int64_t seq) {
  const auto channels = static_cast<double>(spec.num_heads * spec.head_dim);
  std::vector<double> flops = {0};  // the embedding is no product
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const double attended = mean_attended_tokens(seq, spec.layer_window(layer));
    flops.push_back(2 * layer_weights(spec) + 4 * channels * attended);
  }
  flops.push_back(2 * static_cast<double>(spec.vocab_size * spec.hidden_size));
  return flops;
}

double flops_per_token(const ModelSpec& spec, int64_t seq) {
  const std::vector<double> forward = block_flops_per_token(spec, seq);
  return 3 * std::accumulate(forward.begin(), forward.end(), 0.0);
}

}  // namespace zeroth::model
