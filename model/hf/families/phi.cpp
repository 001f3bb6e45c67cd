// Phi 1 to 2: attention and MLP side by side, biases everywhere. Phi 3 to 4: Llama with fused
// products.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kPhiNames[] = {
    {"layers.#.attention.o.", "layers.#.self_attn.dense."},
    {"layers.#.attention.q_norm.", "layers.#.self_attn.q_layernorm."},
    {"layers.#.attention.k_norm.", "layers.#.self_attn.k_layernorm."},
    {"layers.#.mlp.up.", "layers.#.mlp.fc1."},
    {"layers.#.mlp.down.", "layers.#.mlp.fc2."},
    {"head.norm.", "final_layernorm."},
};

constexpr NamePair kPhi3Names[] = {
    {"layers.#.attention.qkv.", "layers.#.self_attn.qkv_proj."},
    {"layers.#.mlp.gate_up.", "layers.#.mlp.gate_up_proj."},
};

constexpr std::string_view kPhi3Targets[] = {"qkv_proj"};

void read_phi(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 2048,
                .norm = {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true},
                .norm_eps_key = "layer_norm_eps",
                .activation = "gelu_new",
                .rope = {.is_partial = true, .partial_factor = 0.5}});
  spec.parallel_residual = ParallelResidual::kOneNorm;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = spec.head_bias = true;
  if (config.flag("qk_layernorm", false)) spec.qk_norm = QkNorm::kPerHead;
  spec.residual_dropout = read_dropout(config, "resid_pdrop", 0);
  spec.embedding_dropout = read_dropout(config, "embd_pdrop", 0);
}

void read_phi3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 4096,
                .norm = {.eps = 1e-5},
                .rope = {.is_partial = true, .context = 4096, .yarn_is_longrope = true},
                .window = {.allowed = true}});
  spec.qkv_layout = QkvLayout::kStacked;
  spec.fused_gate_up = true;
  spec.residual_dropout = read_dropout(config, "resid_pdrop", 0);
  read_dropout(config, "embd_pdrop", 0);  // no code of transformers applies it
  config.reject("attention_bias");
  config.reject("mlp_bias");
}

}  // namespace

Family phi_family() {
  return {.model_type = "phi",
          .read = read_phi,
          .names = kPhiNames,
          .lora_targets = llama_targets(),
          .dropouts = {.residual = true, .embedding = true}};
}

Family phi3_family() {
  return {.model_type = "phi3",
          .read = read_phi3,
          .names = kPhi3Names,
          .lora_targets = kPhi3Targets,
          .dropouts = {.residual = true},
          .padding_token = 32000};
}

}  // namespace zeroth::model
