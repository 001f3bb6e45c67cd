// Hunyuan, the dense models: Llama with norms of q and k after the rotary embeddings.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.attention.q_norm.", "layers.#.self_attn.query_layernorm."},
    {"layers.#.attention.k_norm.", "layers.#.self_attn.key_layernorm."},
};

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 2048, .norm = {.eps = 1e-5}, .rope = {.has_alpha = true}});
  config.require("use_qk_norm", true);  // transformers has the norms in any case
  config.reject("use_cla");
  spec.qk_norm = QkNorm::kPerHead;
  spec.qk_norm_after_rope = true;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
}

}  // namespace

Family hunyuan_v1_dense_family() {
  return {.model_type = "hunyuan_v1_dense", .read = read, .names = kNames, .padding_token = 0};
}

}  // namespace zeroth::model
