#include "model/flops.h"

#include <algorithm>

namespace zeroth::model {
namespace {

// Tokens that a token sees, itself included; the mean over a sequence. window 0: all before it.
double mean_seen(int64_t seq, int64_t window) {
  const auto length = static_cast<double>(seq);
  const auto most = static_cast<double>(window > 0 ? std::min(window, seq) : seq);
  return (most * (most + 1) / 2 + (length - most) * most) / length;
}

double product_weights(const ModelSpec& spec) {
  const auto hidden = static_cast<double>(spec.hidden_size);
  const auto queries = static_cast<double>(spec.num_heads * spec.head_dim);
  const auto keys = static_cast<double>(spec.num_kv_heads * spec.head_dim);
  const double mlp = (spec.gated_mlp ? 3 : 2) * static_cast<double>(spec.intermediate_size);
  const double layer = hidden * (2 * queries + 2 * keys + mlp);
  return static_cast<double>(spec.num_layers) * layer +
         static_cast<double>(spec.vocab_size) * hidden;
}

}  // namespace

double flops_per_token(const ModelSpec& spec, int64_t seq) {
  double seen = 0;  // summed over layers
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    seen += mean_seen(seq, spec.layer_window(layer));
  }
  const auto channels = static_cast<double>(spec.num_heads * spec.head_dim);
  return 6 * product_weights(spec) + 12 * channels * seen;
}

}  // namespace zeroth::model
