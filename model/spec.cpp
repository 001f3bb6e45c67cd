#include "model/spec.h"

#include "base/error.h"

namespace zeroth::model {

int64_t ModelSpec::layer_window(int64_t layer) const {
  ZEROTH_CHECK(layer >= 0 && layer < num_layers, "layer {} of {}", layer, num_layers);
  return sliding_window > 0 && windowed_layers[layer] ? sliding_window : 0;
}

}  // namespace zeroth::model
