// Arcee: Llama with a plain MLP and squared ReLU.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = 4096, .norm = {.eps = 1e-5}, .activation = "relu2"});
  spec.gated_mlp = false;
  read_biases(config, spec);
}

}  // namespace

Family arcee_family() {
  return {.model_type = "arcee", .read = read};
}

}  // namespace zeroth::model
