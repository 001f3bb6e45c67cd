#include "model/spec.h"

#include <cmath>

#include "base/error.h"

namespace zeroth::model {

int64_t ModelSpec::layer_window(int64_t layer) const {
  ZEROTH_CHECK(layer >= 0 && layer < num_layers, "layer {} of {}", layer, num_layers);
  return sliding_window > 0 && windowed_layers[layer] ? sliding_window : 0;
}

double ModelSpec::score_scale(int64_t layer) const {
  double scale = 1;
  if (scale_scores) scale /= std::sqrt(static_cast<double>(head_dim));
  if (scale_scores_by_layer) scale /= static_cast<double>(layer + 1);
  return scale;
}

void override_dropout(ModelSpec& spec, double p) {
  if (!(p >= 0 && p < 1)) throw Error("a dropout of {}, expected 0 <= p < 1", p);
  spec.attention_dropout = p;
  if (spec.family == "gpt2") spec.embedding_dropout = spec.residual_dropout = p;
}

}  // namespace zeroth::model
