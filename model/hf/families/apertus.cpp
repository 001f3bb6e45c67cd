// Apertus: Llama with norms of q and k, and a plain MLP whose activation, xIELU, is trained.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.attention_norm.", "layers.#.attention_layernorm."},
    {"layers.#.mlp_norm.", "layers.#.feedforward_layernorm."},
    {"layers.#.mlp.activation.", "layers.#.mlp.act_fn."},
};

constexpr const char* kLlama3 = R"({
    "rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0,
    "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0})";

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 65536,
                .norm = {.eps = 1e-5},
                .activation_key = nullptr,
                .rope = {.theta = 12000000, .parameters = kLlama3}});
  spec.activation = Activation::kXielu;
  config.require("hidden_act", "xielu");
  spec.gated_mlp = false;
  spec.qk_norm = QkNorm::kPerHead;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  // Keys of published files, which transformers does not read.
  config.require("qk_norm", true);
  config.reject("post_norm");
  config.reject("mlp_bias");
}

}  // namespace

Family apertus_family() {
  return {.model_type = "apertus", .read = read, .names = kNames, .padding_token = 3};
}

}  // namespace zeroth::model
