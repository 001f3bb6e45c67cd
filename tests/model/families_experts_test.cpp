// What families with experts read of their config.json.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/hf/families/family.h"
#include "model/spec.h"
#include "tests/model/family_config.h"

namespace zeroth::model::families_experts_test {
namespace {

using nlohmann::json;

// A letter for each layer: E with experts, D dense.
std::string kinds(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers) text += layer.experts ? 'E' : 'D';
  return text;
}

void check_experts(const ModelSpec& spec, int64_t count, int64_t top_k, int64_t size) {
  REQUIRE(spec.experts);
  CHECK(spec.experts->num_experts == count);
  CHECK(spec.experts->top_k == top_k);
  CHECK(spec.experts->intermediate_size == size);
}

// The tensors that hold one expert's matrices.
std::vector<std::string> first_tensors(const ModelSpec& spec, int64_t size) {
  std::vector<std::string> names;
  const Family& family = family_of(spec);
  for (const PlannedTensor& tensor :
       stored_tensors(family, {"layers.1.mlp.experts.gate_up", {2, 2 * size, 32}}))
    names.push_back(tensor.name);
  for (const PlannedTensor& tensor :
       stored_tensors(family, {"layers.1.mlp.experts.down", {2, 32, size}}))
    names.push_back(tensor.name);
  return names;
}

}  // namespace

TEST_CASE("mixtral has experts in every layer, under names of its own in files") {
  const ModelSpec spec = parse_family("mixtral", {{"num_attention_heads", 8}});
  check_experts(spec, 8, 2, 48);
  CHECK(kinds(spec) == "EEE");
  CHECK(spec.experts->router.normalize);
  CHECK(spec.experts->aux_loss_coef == 0);
  CHECK(spec.num_kv_heads == 8);
  CHECK(spec.rope.theta == 1000000);
  CHECK(spec.norm.eps == 1e-5);
  CHECK(windows(spec) == std::vector<int64_t>{0, 0, 0});
  CHECK(parse_family("mixtral", {{"num_key_value_heads", 4}, {"output_router_logits", true}})
            .experts->aux_loss_coef == 0.001);
  check_names(spec,
              {{"layers.1.mlp.router.weight", "model.layers.1.block_sparse_moe.gate.weight"}});
  const std::string prefix = "model.layers.1.block_sparse_moe.experts.";
  CHECK(first_tensors(spec, 48) ==
        std::vector<std::string>{prefix + "0.w1.weight", prefix + "0.w3.weight",
                                 prefix + "1.w1.weight", prefix + "1.w3.weight",
                                 prefix + "0.w2.weight", prefix + "1.w2.weight"});
  check_refusals(
      "mixtral",
      {{{{"num_key_value_heads", 4}, {"router_jitter_noise", 0.1}}, "router_jitter_noise is 0.1"},
       {{{"num_key_value_heads", 4}, {"num_experts_per_tok", 9}},
        "num_experts_per_tok is 9, but num_local_experts is 8"},
       {{{"num_key_value_heads", 4}, {"router_aux_loss_coef", -1}}, "router_aux_loss_coef is -1"},
       {{{"num_key_value_heads", 4}, {"hidden_act", "gelu"}}, "hidden_act is neither silu nor"}});
}

TEST_CASE("qwen2_moe has a shared expert with a gate, and dense layers between") {
  const json heads = {{"num_key_value_heads", 4}};
  const auto read = [&](json changes) {
    changes.update(heads);
    return parse_family("qwen2_moe", changes);
  };
  const ModelSpec spec = read(json::object());
  check_experts(spec, 60, 4, 1408);
  CHECK_FALSE(spec.experts->router.normalize);
  CHECK(spec.experts->shared_intermediate_size == 5632);
  CHECK(spec.experts->shared_gate);
  CHECK(spec.qkv_bias);
  CHECK(kinds(spec) == "EEE");
  CHECK(kinds(read({{"decoder_sparse_step", 2}})) == "DED");
  CHECK(kinds(read({{"mlp_only_layers", {0, 2}}})) == "DED");
  CHECK(read({{"norm_topk_prob", true}}).experts->router.normalize);
  CHECK_FALSE(read({{"qkv_bias", false}}).qkv_bias);
  // Every second layer below max_window_layers has the window.
  const ModelSpec windowed = read({{"use_sliding_window", true},
                                   {"sliding_window", 7},
                                   {"max_window_layers", 4},
                                   {"num_hidden_layers", 6}});
  CHECK(windows(windowed) == std::vector<int64_t>{7, 0, 7, 0, 0, 0});
  check_names(
      spec, {{"layers.1.mlp.shared_gate.weight", "model.layers.1.mlp.shared_expert_gate.weight"},
             {"layers.1.mlp.shared.up.weight", "model.layers.1.mlp.shared_expert.up_proj.weight"}});
  check_refusals("qwen2_moe", {{{{"num_key_value_heads", 4}, {"mlp_only_layers", {3}}},
                                "mlp_only_layers is [3], expected a list of layers from 0 to 2"}});
}

TEST_CASE("qwen3_moe has norms of q and k, and the number of experts under either name") {
  const ModelSpec spec = parse_family("qwen3_moe");
  check_experts(spec, 128, 8, 768);
  CHECK(spec.head_dim == 8);
  CHECK(spec.qk_norm == QkNorm::kPerHead);
  CHECK_FALSE(spec.experts->router.normalize);
  CHECK(spec.experts->shared_intermediate_size == 0);
  CHECK(parse_family("qwen3_moe", {{"num_experts", 16}}).experts->num_experts == 16);
  CHECK(parse_family("qwen3_moe", {{"num_local_experts", 32}}).experts->num_experts == 32);
  CHECK(windows(parse_family("qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 5}})) ==
        std::vector<int64_t>{5, 5, 5});
  check_names(spec, {{"layers.1.mlp.router.weight", "model.layers.1.mlp.gate.weight"},
                     {"layers.1.mlp.experts.down", "model.layers.1.mlp.experts.down_proj"}});
}

TEST_CASE("olmoe normalizes q and k over all heads, and has its own coefficient") {
  const ModelSpec spec = parse_family("olmoe", {{"output_router_logits", true}, {"clip_qkv", 3.0}});
  check_experts(spec, 64, 8, 48);
  CHECK(spec.experts->aux_loss_coef == 0.01);
  CHECK(spec.qk_norm == QkNorm::kAllHeads);
  CHECK(spec.clip_qkv == 3.0);
  CHECK(spec.norm_placement == NormPlacement::kPre);
  CHECK(spec.padding_token == 1);
}

TEST_CASE("granitemoe and granitemoehybrid have fused matrices; state spaces are refused") {
  const ModelSpec spec = parse_family("granitemoe");
  check_experts(spec, 8, 2, 48);
  check_names(
      spec,
      {{"layers.1.mlp.experts.gate_up", "model.layers.1.block_sparse_moe.input_linear.weight"},
       {"layers.1.mlp.router.weight", "model.layers.1.block_sparse_moe.router.layer.weight"}});
  const json attention = {"attention", "full_attention", "attention"};
  const ModelSpec dense = parse_family(
      "granitemoehybrid",
      {{"layer_types", attention}, {"num_local_experts", 0}, {"shared_intermediate_size", 40}});
  CHECK_FALSE(dense.experts);
  CHECK(dense.intermediate_size == 40);
  CHECK(dense.fused_gate_up);
  CHECK(ropes(dense) == "---");
  check_names(dense,
              {{"layers.1.mlp.gate_up.weight", "model.layers.1.shared_mlp.input_linear.weight"}});
  const ModelSpec experts = parse_family(
      "granitemoehybrid", {{"layers_block_type", attention}, {"position_embedding_type", "rope"}});
  CHECK(experts.experts->shared_intermediate_size == 1024);
  CHECK(ropes(experts) == "GGG");
  check_names(experts, {{"layers.1.mlp.shared.gate_up.weight",
                         "model.layers.1.shared_mlp.input_linear.weight"}});
  check_refusals(
      "granitemoehybrid",
      {{json::object(), "layer_types is missing, which means layers with state spaces"},
       {{{"layer_types", {"mamba", "attention", "attention"}}}, "layer_types has \"mamba\""},
       {{{"layer_types", attention}, {"position_embedding_type", "alibi"}},
        "position_embedding_type is \"alibi\""}});
}

TEST_CASE("gpt_oss has sinks, biases and an activation of its own") {
  const ModelSpec spec = parse_family("gpt_oss", {{"num_attention_heads", 8}});
  CHECK(spec.norm.product_in_fp32);
  check_experts(spec, 128, 4, 48);
  CHECK(spec.experts->in_out);
  CHECK(spec.experts->interleaved);
  CHECK(spec.experts->bias);
  CHECK(spec.experts->router.bias);
  CHECK(spec.experts->limit == 7);
  CHECK(spec.sinks);
  CHECK(spec.o_bias);
  CHECK(spec.head_dim == 64);
  CHECK(windows(spec) == std::vector<int64_t>{128, 0, 128});
  CHECK(spec.rope.theta == 150000);
  CHECK(spec.rope.scaling == RopeScaling::kYarn);
  CHECK(spec.rope.factor == 32);
  CHECK_FALSE(spec.rope.truncate);
  check_names(spec,
              {{"layers.1.attention.sinks", "model.layers.1.self_attn.sinks"},
               {"layers.1.mlp.router.bias", "model.layers.1.mlp.router.bias"},
               {"layers.1.mlp.experts.down_bias", "model.layers.1.mlp.experts.down_proj_bias"}});
  check_refusals(
      "gpt_oss",
      {{{{"num_attention_heads", 8}, {"quantization_config", {{"quant_method", "mxfp4"}}}},
        "mxfp4"}});
}

TEST_CASE("glm4_moe routes by a sigmoid with a correction, in groups") {
  const ModelSpec spec = parse_family("glm4_moe", {{"num_attention_heads", 8}});
  check_experts(spec, 128, 8, 1408);
  CHECK(kinds(spec) == "DEE");
  const RouterSpec& router = spec.experts->router;
  CHECK(router.score == RouterScore::kSigmoid);
  CHECK(router.correction_bias);
  CHECK(router.normalize);
  CHECK(router.in_fp32);
  CHECK(router.groups == 1);
  CHECK(spec.experts->shared_intermediate_size == 1408);
  CHECK(spec.rope.rotary_dim == 2);
  CHECK_FALSE(spec.rope.interleaved);
  CHECK(spec.qk_norm == QkNorm::kNone);
  CHECK(skipped_prefix(family_of(spec), spec, "model.layers.3.eh_proj.weight") ==
        "model.layers.3.");
  CHECK_FALSE(skipped_prefix(family_of(spec), spec, "model.layers.2.mlp.gate.weight"));
  check_names(spec, {{"layers.1.mlp.router.correction_bias",
                      "model.layers.1.mlp.gate.e_score_correction_bias"}});
  check_refusals("glm4_moe",
                 {{{{"num_attention_heads", 8}, {"n_group", 3}},
                   "n_routed_experts is 128, not a multiple of n_group 3"},
                  {{{"num_attention_heads", 8}, {"n_group", 64}, {"topk_group", 2}},
                   "topk_group is 2, so that 8 experts cannot be chosen from 64 groups"}});
}

TEST_CASE("ernie4_5_moe has experts between a first and a last layer") {
  const json more = {{"num_hidden_layers", 4}};
  const ModelSpec spec = parse_family("ernie4_5_moe", more);
  check_experts(spec, 64, 6, 1536);
  CHECK(kinds(spec) == "DEEE");
  CHECK(spec.experts->shared_intermediate_size == 2 * 1536);
  CHECK(spec.experts->router.correction_in_row);
  CHECK(spec.experts->router.in_fp32);
  CHECK(spec.experts->router.min_sum == 1e-12);
  CHECK(parse_family("ernie4_5_moe", {{"moe_norm_min", 0.5}}).experts->router.min_sum == 0.5);
  check_refusals("ernie4_5_moe", {{{{"moe_norm_min", -1}}, "moe_norm_min"}});
  CHECK_FALSE(spec.head_bias);
  CHECK(parse_family("ernie4_5_moe", {{"use_bias", true}}).head_bias);
  CHECK_FALSE(parse_family("ernie4_5", {{"use_bias", true}}).head_bias);
  CHECK(spec.rope.theta == 500000);
  CHECK(kinds(parse_family("ernie4_5_moe", {{"num_hidden_layers", 4},
                                            {"moe_layer_start_index", 0},
                                            {"moe_layer_end_index", 2},
                                            {"moe_layer_interval", 2}})) == "DEDD");
  check_names(spec, {{"layers.1.mlp.router.correction_bias",
                      "model.layers.1.mlp.moe_statics.e_score_correction_bias"}});
}

TEST_CASE("llama4_text attends within chunks, and scales queries where nothing rotates") {
  const ModelSpec spec =
      parse_family("llama4_text", {{"num_attention_heads", 8}, {"num_hidden_layers", 4}});
  check_experts(spec, 16, 1, 48);
  CHECK(kinds(spec) == "EEEE");
  CHECK(ropes(spec) == "GGG-");
  CHECK(spec.layers[0].chunk == 8192);
  CHECK(spec.layers[3].chunk == 0);
  CHECK(spec.layers[0].qk_norm);
  CHECK_FALSE(spec.layers[3].qk_norm);
  CHECK(spec.layers[3].scales_queries);
  CHECK(spec.query_scale->interval == 8192);
  CHECK(spec.query_scale->offset == 1);
  CHECK(spec.mlp_size(0) == 16384);
  CHECK(spec.experts->router.scales_input);
  CHECK(spec.experts->shared_intermediate_size == 48);
  CHECK_FALSE(spec.qk_norm_spec.weight);
  const ModelSpec other = parse_family("llama4_text", {{"num_attention_heads", 8},
                                                       {"interleave_moe_layer_step", 2},
                                                       {"attention_chunk_size", nullptr},
                                                       {"attn_temperature_tuning", false},
                                                       {"no_rope_layers", {0, 1, 1}},
                                                       {"use_qk_norm", false}});
  CHECK(kinds(other) == "DED");
  CHECK(ropes(other) == "-GG");
  CHECK(other.layers[1].chunk == 0);
  CHECK_FALSE(other.layers[0].scales_queries);
  CHECK(other.qk_norm == QkNorm::kNone);
  check_names(
      spec, {{"layers.1.mlp.up.weight", "model.layers.1.feed_forward.up_proj.weight"},
             {"layers.1.mlp.experts.gate_up", "model.layers.1.feed_forward.experts.gate_up_proj"}});
  check_refusals("llama4_text", {{{{"num_attention_heads", 8}, {"output_router_logits", true}},
                                  "output_router_logits is true, but llama4_text"}});
}

TEST_CASE("deepseek_v2 and v3 have latent attention, and route in groups") {
  const ModelSpec v3 = parse_family("deepseek_v3", {{"num_hidden_layers", 5}});
  check_experts(v3, 256, 8, 2048);
  CHECK(kinds(v3) == "DDDEE");
  CHECK(v3.latent->q_rank == 1536);
  CHECK(v3.latent->kv_rank == 512);
  CHECK(v3.latent->v_dim == 128);
  CHECK(v3.head_dim == 128 + 64);
  CHECK(v3.num_kv_heads == 4);
  CHECK(v3.rope.rotary_dim == 64);
  CHECK(v3.rope.interleaved);
  CHECK(v3.experts->router.groups == 8);
  CHECK(v3.experts->router.kept_groups == 4);
  CHECK(v3.experts->router.scale == 2.5);
  CHECK(v3.score_scale(0) == doctest::Approx(1 / std::sqrt(192.0)));
  CHECK_FALSE(parse_family("deepseek_v3", {{"rope_interleave", false}}).rope.interleaved);
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 40.0},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"original_max_position_embeddings", 4096}};
  const double mscale = 0.1 * std::log(40.0) + 1;
  CHECK(parse_family("deepseek_v3", {{"rope_scaling", yarn}}).score_scale(2) ==
        doctest::Approx(mscale * mscale / std::sqrt(192.0)));
  check_names(v3, {{"layers.1.attention.latent.kv_a.weight",
                    "model.layers.1.self_attn.kv_a_proj_with_mqa.weight"},
                   {"layers.1.attention.latent.q_norm.weight",
                    "model.layers.1.self_attn.q_a_layernorm.weight"}});

  const ModelSpec v2 =
      parse_family("deepseek_v2", {{"num_experts_per_tok", 6}, {"q_lora_rank", nullptr}});
  check_experts(v2, 64, 6, 1407);
  CHECK(kinds(v2) == "EEE");
  CHECK(v2.latent->q_rank == 0);
  CHECK_FALSE(v2.experts->router.normalize);
  CHECK(v2.experts->router.groups == 1);
  CHECK(v2.experts->shared_intermediate_size == 2 * 1407);
  const ModelSpec grouped = parse_family("deepseek_v2", {{"num_experts_per_tok", 6},
                                                         {"topk_method", "group_limited_greedy"},
                                                         {"n_group", 8},
                                                         {"topk_group", 3},
                                                         {"norm_topk_prob", true}});
  CHECK(grouped.experts->router.groups == 8);
  CHECK_FALSE(grouped.experts->router.groups_by_two);
  CHECK_FALSE(grouped.experts->router.normalize);
  check_refusals("deepseek_v2", {{{{"num_experts_per_tok", 6}, {"topk_method", "noaux_tc"}},
                                  "topk_method is \"noaux_tc\""},
                                 {json::object(), "num_experts_per_tok is missing"}});
}

}  // namespace zeroth::model::families_experts_test
