// gpt-oss: experts with biases and an activation of their own, a sink of each head, and a window in
// every second layer.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.attention.sinks", "layers.#.self_attn.sinks"},
    {"layers.#.mlp.router.", "layers.#.mlp.router."},
    {"layers.#.mlp.experts.gate_up_bias", "layers.#.mlp.experts.gate_up_proj_bias"},
    {"layers.#.mlp.experts.down_bias", "layers.#.mlp.experts.down_proj_bias"},
};

constexpr const char* kYarn = R"({
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
    "original_max_position_embeddings": 4096})";

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(
      config, spec,
      {.max_positions = 131072,
       .kv_heads = 8,
       .head_dim = 64,
       .norm = {.eps = 1e-5, .product_in_fp32 = true},
       .rope = {.theta = 150000, .parameters = kYarn},
       .window = {.allowed = true, .size = 128, .has_layer_types = true, .full_every = 2}});
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", true);
  spec.sinks = true;
  read_experts(config, spec,
               {.count = "num_local_experts",
                .size = "intermediate_size",
                .default_count = 128,
                .default_top_k = 4});
  spec.experts->router.bias = true;
  spec.experts->in_out = spec.experts->interleaved = spec.experts->bias = true;
  spec.experts->limit = 7;
  config.require("swiglu_limit", 7.0);  // transformers does not read it
}

}  // namespace

Family gpt_oss_family() {
  return {.model_type = "gpt_oss", .read = read, .names = kNames};
}

}  // namespace zeroth::model
