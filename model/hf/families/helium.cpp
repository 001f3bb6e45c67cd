// Helium: Llama with interleaved rotary embeddings.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 4096,
                .kv_heads = 20,
                .head_dim = 128,
                .norm = {.eps = 1e-8, .product_in_fp32 = true},
                .rope = {.theta = 100000, .interleaved = true}});
  // The output projection is square.
  if (spec.num_heads * spec.head_dim != spec.hidden_size)
    config.add_error("head_dim", "is {}, but {} heads of it must make up hidden_size {}",
                     spec.head_dim, spec.num_heads, spec.hidden_size);
  spec.qkv_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
}

}  // namespace

Family helium_family() {
  return {.model_type = "helium", .read = read, .padding_token = 3};
}

}  // namespace zeroth::model
