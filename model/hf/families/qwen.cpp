// Qwen2 and 2.5, with biases of q, k and v; Qwen3, with norms of q and k.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr int64_t kPositions = 32768;
constexpr WindowKeys kWindow = {
    .allowed = true, .size = 4096, .has_switch = true, .has_layer_types = true};

void read_qwen2(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = kPositions, .window = kWindow});
  spec.qkv_bias = true;
  config.reject("attention_bias");
  config.reject("mlp_bias");
}

void read_qwen3(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec, {.max_positions = kPositions, .head_dim = 128, .window = kWindow});
  spec.qk_norm = QkNorm::kPerHead;
  spec.qkv_bias = spec.o_bias = config.flag("attention_bias", false);
  config.reject("mlp_bias");
}

}  // namespace

Family qwen2_family() {
  return {.model_type = "qwen2", .read = read_qwen2, .lora_targets = llama_targets()};
}

Family qwen3_family() {
  return {.model_type = "qwen3", .read = read_qwen3, .lora_targets = llama_targets()};
}

}  // namespace zeroth::model
