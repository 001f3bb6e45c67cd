// ERNIE 4.5: Llama with interleaved rotary embeddings and one switch of biases, and its mixtures of
// experts.
#include <algorithm>
#include <cmath>

#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kMoeNames[] = {
    {"layers.#.mlp.router.correction_bias", "layers.#.mlp.moe_statics.e_score_correction_bias"},
};
constexpr std::string_view kSkipped[] = {"mtp.", "model.mtp"};

void read(ConfigReader& config, ModelSpec& spec, DecoderKeys keys) {
  keys.max_positions = 131072;
  keys.norm.eps = 1e-5;
  keys.tied = true;
  keys.rope = {.theta = 500000, .interleaved = true};
  read_decoder(config, spec, keys);
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = config.flag("use_bias", false);
  config.reject("attention_dropout");  // transformers does not apply it
  spec.attention_dropout = 0;
}

void read_dense(ConfigReader& config, ModelSpec& spec) {
  read(config, spec, {.kv_heads = 2, .head_dim = 128});
}

void read_moe(ConfigReader& config, ModelSpec& spec) {
  read(config, spec, {.kv_heads = 4});
  spec.head_bias = spec.o_bias;
  read_experts(config, spec,
               {.count = "moe_num_experts",
                .top_k = "moe_k",
                .default_count = 64,
                .default_top_k = 6,
                .default_size = 1536});
  spec.experts->router = {.correction_bias = true, .correction_in_row = true, .in_fp32 = true};
  spec.experts->router.min_sum = config.positive("moe_norm_min", 1e-12);
  double shared = config.number("moe_num_shared_experts", 2);
  if (!(shared >= 0 && shared <= kMaxExperts) || shared != std::floor(shared)) {
    config.add_error("moe_num_shared_experts", "is {}, expected a whole number from 0 to {}",
                     shared, kMaxExperts);
    shared = 0;
  }
  spec.experts->shared_intermediate_size =
      static_cast<int64_t>(shared) * spec.experts->intermediate_size;
  const double begin = config.number("moe_layer_start_index", 1);
  const double last = config.number("moe_layer_end_index", -1);
  const int64_t step = std::max<int64_t>(config.size("moe_layer_interval", 1), 1);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const auto at = static_cast<double>(layer);
    spec.layers[layer].experts =
        (layer + 1) % step == 0 && at >= begin && (last == -1 || at <= last);
  }
}

}  // namespace

Family ernie4_5_family() {
  return {.model_type = "ernie4_5", .read = read_dense, .padding_token = 0};
}

Family ernie4_5_moe_family() {
  return {.model_type = "ernie4_5_moe",
          .read = read_moe,
          .names = kMoeNames,
          .stacked = expert_names(),
          .skipped_prefixes = kSkipped,
          .padding_token = 0};
}

}  // namespace zeroth::model
