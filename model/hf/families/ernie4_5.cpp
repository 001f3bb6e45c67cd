// ERNIE 4.5, the dense models: Llama with interleaved rotary embeddings and one switch of biases.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .kv_heads = 2,
                .head_dim = 128,
                .norm = {.eps = 1e-5},
                .tied = true,
                .rope = {.theta = 500000, .interleaved = true}});
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = config.flag("use_bias", false);
}

}  // namespace

Family ernie4_5_family() {
  return {.model_type = "ernie4_5", .read = read, .padding_token = 0};
}

}  // namespace zeroth::model
