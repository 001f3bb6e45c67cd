#include "model/spec.h"

#include "base/error.h"

namespace zeroth::model {

int64_t ModelSpec::layer_window(int64_t layer) const {
  ZEROTH_CHECK(layer >= 0 && layer < num_layers, "layer {} of {}", layer, num_layers);
  return sliding_window > 0 && windowed_layers[layer] ? sliding_window : 0;
}

void override_dropout(ModelSpec& spec, double p) {
  if (!(p >= 0 && p < 1)) throw Error("a dropout of {}, expected 0 <= p < 1", p);
  spec.attention_dropout = p;
  if (spec.family == "gpt2") spec.embedding_dropout = spec.residual_dropout = p;
}

}  // namespace zeroth::model
