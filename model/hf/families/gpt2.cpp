// GPT-2: learned positions, LayerNorm, products stored [in, out]. GPTBigCode (StarCoder 1): the
// same with one key and value head, and products stored [out, in]. GPT-J: attention and MLP side by
// side, interleaved rotary embeddings of a part of each head, and a bias of the head.
#include <cmath>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kGpt2Names[] = {
    {"embedding.weight", "wte.weight"},
    {"embedding.positions", "wpe.weight"},
    {"layers.#.attention_norm.", "h.#.ln_1."},
    {"layers.#.attention.qkv.", "h.#.attn.c_attn."},
    {"layers.#.attention.o.", "h.#.attn.c_proj."},
    {"layers.#.mlp_norm.", "h.#.ln_2."},
    {"layers.#.mlp.up.", "h.#.mlp.c_fc."},
    {"layers.#.mlp.down.", "h.#.mlp.c_proj."},
    {"head.norm.", "ln_f."},
};

constexpr NamePair kGptjNames[] = {
    {"embedding.weight", "wte.weight"},
    {"layers.#.attention_norm.", "h.#.ln_1."},
    {"layers.#.attention.q.", "h.#.attn.q_proj."},
    {"layers.#.attention.k.", "h.#.attn.k_proj."},
    {"layers.#.attention.v.", "h.#.attn.v_proj."},
    {"layers.#.attention.o.", "h.#.attn.out_proj."},
    {"layers.#.mlp.up.", "h.#.mlp.fc_in."},
    {"layers.#.mlp.down.", "h.#.mlp.fc_out."},
    {"head.norm.", "ln_f."},
};

constexpr std::string_view kGpt2Targets[] = {"c_attn"};
constexpr std::string_view kCausalMasks[] = {".attn.bias", ".attn.masked_bias"};

// Reads what both have; scores may be divided by a layer's number.
void read_both(ConfigReader& config, ModelSpec& spec, bool scales_by_layer) {
  read_gpt_sizes(config, spec);
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.learned_positions = true;
  spec.qkv_layout = QkvLayout::kStacked;
  const bool scales = config.flag("scale_attn_weights", true);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    double scale = 1;
    if (scales) scale /= std::sqrt(static_cast<double>(spec.head_dim));
    if (scales_by_layer) scale /= static_cast<double>(layer + 1);
    spec.layers[layer].score_scale = scale;
    spec.layers[layer].rope = LayerRope::kNone;
  }
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.embedding_dropout = read_dropout(config, "embd_pdrop", 0.1);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0.1);
  spec.residual_dropout = read_dropout(config, "resid_pdrop", 0.1);
}

void read_gpt2(ConfigReader& config, ModelSpec& spec) {
  read_both(config, spec, config.flag("scale_attn_by_inverse_layer_idx", false));
  spec.conv1d = true;
}

void read_gpt_bigcode(ConfigReader& config, ModelSpec& spec) {
  read_both(config, spec, /*scales_by_layer=*/false);
  if (config.flag("multi_query", true)) {
    spec.num_kv_heads = 1;
  } else {
    spec.qkv_layout = QkvLayout::kGrouped;
  }
  config.require("num_key_value_heads", spec.num_kv_heads);  // transformers writes it
  // The softmax is in fp32 here, and in transformers.
  for (const char* key : {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"})
    config.find(key);
}

void read_gptj(ConfigReader& config, ModelSpec& spec) {
  read_gpt_sizes(config, spec);
  // Older files have these, which transformers does not read.
  config.require("rotary", true);
  config.require("scale_attn_weights", true);
  spec.parallel_residual = ParallelResidual::kOneNorm;
  spec.mlp_bias = spec.head_bias = true;
  spec.rope = {.interleaved = true};
  const int64_t rotary_dim = config.size("rotary_dim", 64, kMaxWidth);
  if (rotary_dim % 2 != 0 || rotary_dim > spec.head_dim)
    config.add_error("rotary_dim", "is {}, expected an even number up to {}, the size of a head",
                     rotary_dim, spec.head_dim);
  spec.rope.rotary_dim = rotary_dim;
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.embedding_dropout = read_dropout(config, "embd_pdrop", 0);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0);
  spec.residual_dropout = read_dropout(config, "resid_pdrop", 0);
}

}  // namespace

Family gpt2_family() {
  return {.model_type = "gpt2",
          .read = read_gpt2,
          .names = kGpt2Names,
          .prefix = "transformer.",
          .buffers = kCausalMasks,
          .lora_targets = kGpt2Targets,
          .dropouts = {.residual = true, .embedding = true},
          .pads = false};
}

Family gpt_bigcode_family() {
  Family family = gpt2_family();
  family.model_type = "gpt_bigcode";
  family.read = read_gpt_bigcode;
  return family;
}

Family gptj_family() {
  return {.model_type = "gptj",
          .read = read_gptj,
          .names = kGptjNames,
          .prefix = "transformer.",
          .buffers = kCausalMasks,
          .lora_targets = llama_targets(),
          .dropouts = {.residual = true, .embedding = true},
          .pads = false};
}

}  // namespace zeroth::model
