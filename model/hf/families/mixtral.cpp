// Mixtral: Mistral with experts in every layer.
#include "model/hf/families/decoder.h"

namespace zeroth::model {
namespace {

constexpr NamePair kNames[] = {
    {"layers.#.mlp.router.", "layers.#.block_sparse_moe.gate."},
};

constexpr StackedName kExpertNames[] = {
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.experts.#.w1.weight", 0, 2},
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.experts.#.w3.weight", 1, 2},
    {"layers.#.mlp.experts.down", "layers.#.block_sparse_moe.experts.#.w2.weight", 0, 1},
};

void read(ConfigReader& config, ModelSpec& spec) {
  read_decoder(config, spec,
               {.max_positions = 131072,
                .kv_heads = 8,
                .norm = {.eps = 1e-5},
                .rope = {.theta = 1000000},
                .window = {.allowed = true}});
  read_experts(config, spec,
               {.count = "num_local_experts",
                .size = "intermediate_size",
                .default_count = 8,
                .default_top_k = 2});
}

}  // namespace

Family mixtral_family() {
  return {.model_type = "mixtral", .read = read, .names = kNames, .stacked = kExpertNames};
}

}  // namespace zeroth::model
