// Arcee: Llama with a plain MLP and squared ReLU.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = 4096, .norm_eps = 1e-5, .activation = "relu2"});
  spec.gated_mlp = false;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
}

}  // namespace

Family arcee_family() {
  return {.model_type = "arcee", .read = read, .names = llama_names(), .buffers = rotary_buffers()};
}

}  // namespace zeroth::model
