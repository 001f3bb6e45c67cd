// StarCoder2: LayerNorm, a plain MLP with tanh GELU, and biases everywhere.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.mlp.up.", "layers.#.mlp.c_fc."},
    {"layers.#.mlp.down.", "layers.#.mlp.c_proj."},
};

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 4096,
                .kv_heads = 2,
                .norm = {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true},
                .norm_eps_key = "norm_epsilon",
                .activation = "gelu_pytorch_tanh",
                .tied = true,
                .window = {.allowed = true}});
  spec.gated_mlp = false;
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = config.flag("use_bias", true);
  spec.residual_dropout = read_dropout(config, "residual_dropout", 0);
  spec.embedding_dropout = read_dropout(config, "embedding_dropout", 0);
  spec.initializer_range = 0.018042;
}

}  // namespace

Family starcoder2_family() {
  return {.model_type = "starcoder2",
          .read = read,
          .names = kNames,
          .dropouts = {.residual = true, .embedding = true}};
}

}  // namespace zeroth::model
