#include "tests/model/chain_variants.h"

namespace zeroth::model {
namespace {

// Four heads that share two key/value heads; sizes that do not divide evenly where they need not.
ModelSpec llama() {
  ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = 61;
  spec.hidden_size = 16;
  spec.intermediate_size = 24;
  spec.num_layers = 2;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 6;
  spec.max_positions = 16;
  spec.initializer_range = 0.3;
  return spec;
}

// Sets what a dense family needs beyond Llama.
void add_properties(const std::string& name, ModelSpec& spec) {
  if (name == "phi3") {
    spec.family = name;
    spec.qkv_layout = QkvLayout::kStacked;
    spec.fused_gate_up = true;
    spec.rope.rotary_dim = 4;
  }
  if (name == "gpt_neox") {
    spec.family = name;
    spec.norm = {.kind = NormKind::kLayer, .bias = true};
    spec.parallel_residual = ParallelResidual::kTwoNorms;
    spec.qkv_layout = QkvLayout::kGrouped;
    spec.num_kv_heads = spec.num_heads;
    spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  }
  if (name == "gptj") {
    spec.family = name;
    spec.parallel_residual = ParallelResidual::kOneNorm;
    spec.head_bias = true;
  }
  if (name == "gemma2") {
    spec.family = name;
    spec.norm.weight_offset = 1;
    spec.norm_placement = NormPlacement::kSandwich;
    spec.score_softcap = 2;
    spec.logits_softcap = 3;
    spec.tie_word_embeddings = true;
  }
  if (name == "olmo2") {
    spec.family = name;
    spec.norm_placement = NormPlacement::kPost;
    spec.qk_norm = QkNorm::kAllHeads;
    spec.clip_qkv = 0.5;
  }
  if (name == "cohere") {
    spec.family = name;
    spec.norm = {.kind = NormKind::kLayer};
    spec.qk_norm = QkNorm::kPerHeadOwnWeight;
    spec.qk_norm_spec = spec.norm;
  }
}

// Sets what attention or an activation has beyond Llama, or what is in their place.
void add_new_arithmetic(const std::string& name, ModelSpec& spec) {
  if (name == "apertus") {
    spec.family = name;
    spec.activation = Activation::kXielu;
    spec.gated_mlp = false;
    spec.qk_norm = QkNorm::kPerHead;
  }
  if (name == "lfm2") {
    spec.family = name;
    spec.short_conv = {.kernel_size = 3, .bias = true};
    spec.layers = {{.mixer = LayerMixer::kShortConv}, {}};
  }
  if (name == "bloom") {
    spec.family = name;
    spec.norm = {.kind = NormKind::kLayer, .bias = true};
    spec.head_dim = 16;
    spec.num_kv_heads = spec.num_heads;
    spec.qkv_layout = QkvLayout::kGrouped;
    spec.qkv_bias = spec.embedding_norm = spec.tie_word_embeddings = true;
    spec.alibi_slopes = {1, 0.1, 0.5, 0.01};
    spec.layers = {{.rope = LayerRope::kNone}, {.rope = LayerRope::kNone}};
  }
  if (name == "scores") {
    spec.sinks = true;
    spec.alibi_slopes = {1, 0.1, 0.5, 0.01};
    spec.query_scale = {.scale = 0.5, .interval = 2};
    spec.layers = {{.chunk = 3}, {.scales_queries = true}};
  }
}

// Sets what a family with delta nets needs.
void add_delta_net(const std::string& name, ModelSpec& spec) {
  if (name != "qwen3_next" && name != "qwen3_5_text") return;
  spec.family = name;
  spec.norm.weight_offset = 1;
  spec.qk_norm = QkNorm::kPerHead;
  spec.gated_attention = true;
  spec.delta_net = DeltaNetSpec{.key_heads = 4,
                                .value_heads = 8,
                                .key_dim = 8,
                                .value_dim = 6,
                                .kernel = 3,
                                .fused = name == "qwen3_next"};
  spec.layers = {{.mixer = LayerMixer::kDeltaNet}, {}};
}

// Sets what a mixture of experts needs.
void add_experts(const std::string& name, ModelSpec& spec) {
  if (name == "qwen2_moe") {
    spec.experts = ExpertsSpec{.num_experts = 8,
                               .top_k = 3,
                               .intermediate_size = 10,
                               .shared_intermediate_size = 12,
                               .shared_gate = true,
                               .aux_loss_coef = 0.1};
  } else if (name == "gpt_oss") {
    spec.experts = ExpertsSpec{.num_experts = 4,
                               .top_k = 2,
                               .intermediate_size = 10,
                               .router = {.bias = true},
                               .in_out = true,
                               .interleaved = true,
                               .bias = true,
                               .limit = 0.5};
  } else if (name == "llama4_text") {
    spec.experts = ExpertsSpec{
        .num_experts = 4,
        .top_k = 1,
        .intermediate_size = 10,
        .router = {.score = RouterScore::kSigmoid, .normalize = false, .scales_input = true},
        .in_out = true};
  } else if (name == "deepseek_v3") {
    spec.experts = ExpertsSpec{.num_experts = 8,
                               .top_k = 2,
                               .intermediate_size = 10,
                               .router = {.score = RouterScore::kSigmoid,
                                          .correction_bias = true,
                                          .groups = 4,
                                          .kept_groups = 2,
                                          .scale = 1.5,
                                          .in_fp32 = true}};
    spec.latent = LatentSpec{.q_rank = 6, .kv_rank = 5, .nope_dim = 4, .rope_dim = 2, .v_dim = 4};
    spec.num_kv_heads = spec.num_heads;
    spec.rope.rotary_dim = 2;
  } else {
    return;
  }
  spec.family = name;
  spec.layers = {{}, {.experts = true}};
}

// Sets what Gemma 4 needs, with all that its sizes have: one of them has the experts.
void add_gemma4(const std::string& name, ModelSpec& spec) {
  if (name != "gemma4_text") return;
  spec.family = name;
  spec.num_layers = 3;
  spec.norm_placement = NormPlacement::kSandwich;
  spec.qk_norm = QkNorm::kPerHead;
  spec.v_norm = spec.layer_scalar = spec.tie_word_embeddings = true;
  spec.activation = Activation::kGeluTanh;
  spec.per_layer_input = PerLayerInputSpec{.vocab_size = 67, .size = 24};
  spec.experts = ExpertsSpec{.num_experts = 8,
                             .top_k = 3,
                             .intermediate_size = 10,
                             .router = {.has_scales = true},
                             .beside_mlp = true};
  spec.rope = {.head_dim = 8, .scaling = RopeScaling::kProportional, .rotated_share = 0.5};
  const LayerSpec local = {
      .window = 3, .rope = LayerRope::kLocal, .score_scale = 0.1, .experts = true};
  const LayerSpec global = {.head_dim = 8, .num_kv_heads = 1, .k_is_v = true, .score_scale = 0.1};
  spec.layers = {local, global, global};
  spec.layers[2].kv_layer = 1;
}

}  // namespace

ModelSpec chain_variant(const std::string& name) {
  ModelSpec spec = llama();
  add_experts(name, spec);
  add_properties(name, spec);
  add_delta_net(name, spec);
  add_new_arithmetic(name, spec);
  add_gemma4(name, spec);
  if (name == "qwen2") spec.qkv_bias = true;
  if (name == "qwen3") {
    spec.qk_norm = QkNorm::kPerHead;
    spec.tie_word_embeddings = true;
  }
  if (name == "padding" || name == "padding_tied") spec.padding_token = 40;
  if (name == "padding_tied") spec.tie_word_embeddings = true;
  if (name == "window") {
    spec.layers = {{.window = 3}, {}};
  }
  if (name == "seed_oss") {
    spec.family = name;
    spec.qkv_bias = true;
    spec.residual_dropout = 0.1;
  }
  if (name == "multipliers") {
    spec.embedding_multiplier = 3;
    spec.residual_multiplier = 0.5;
    spec.logits_multiplier = 0.25;
    spec.layers = {{.score_scale = 0.3}, {.score_scale = 0.3}};
  }
  if (name == "nope") {
    spec.layers = {{}, {.rope = LayerRope::kNone}};
    spec.activation = Activation::kReluSquared;
    spec.gated_mlp = false;
  }
  if (name == "interleaved") spec.rope.interleaved = true;
  if (name == "starcoder2") {
    spec.family = name;
    spec.norm = {.kind = NormKind::kLayer, .eps = 1e-6, .bias = true};
    spec.activation = Activation::kGeluTanh;
    spec.gated_mlp = false;
    spec.qkv_bias = spec.o_bias = spec.mlp_bias = spec.tie_word_embeddings = true;
  }
  if (name != "gpt2") return spec;
  spec.family = "gpt2";
  spec.num_kv_heads = spec.num_heads;
  spec.head_dim = 4;
  spec.norm = {.kind = NormKind::kLayer, .eps = 1e-6, .bias = true};
  spec.activation = Activation::kGeluTanh;
  spec.gated_mlp = false;
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  spec.conv1d = spec.learned_positions = spec.tie_word_embeddings = true;
  spec.qkv_layout = QkvLayout::kStacked;
  return spec;
}

}  // namespace zeroth::model
