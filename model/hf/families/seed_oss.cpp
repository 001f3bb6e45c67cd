// Seed-OSS: Llama with biases of q, k and v alone, and dropout of the residual stream.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 524288, .kv_heads = 8, .head_dim = 128, .attention_dropout = 0.1});
  spec.qkv_bias = config.flag("attention_bias", true);
  spec.o_bias = config.flag("attention_out_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.residual_dropout = read_dropout(config, "residual_dropout", 0.1);
}

}  // namespace

Family seed_oss_family() {
  return {
      .model_type = "seed_oss", .read = read, .dropouts = {.residual = true}, .padding_token = 1};
}

}  // namespace zeroth::model
