// Experts in config.json, which families name in different ways.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json/json.h"
#include "model/hf/families/decoder.h"

namespace zeroth::model {

using nlohmann::json;

namespace {

constexpr StackedName kExpertNames[] = {
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.#.gate_proj.weight", 0, 2},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.#.up_proj.weight", 1, 2},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.#.down_proj.weight", 0, 1},
};

}  // namespace

void read_experts(ConfigReader& config, ModelSpec& spec, const ExpertKeys& keys) {
  ExpertsSpec experts;
  experts.num_experts = config.size(keys.count, keys.default_count, kMaxExperts);
  experts.top_k = config.size(keys.top_k, keys.default_top_k, kMaxExperts);
  experts.intermediate_size = config.size(keys.size, keys.default_size, 16 * kMaxWidth);
  require_width(config, keys.count, experts.num_experts * experts.intermediate_size);
  if (experts.top_k > experts.num_experts)
    config.add_error(keys.top_k, "is {}, but {} is {}", experts.top_k, keys.count,
                     experts.num_experts);
  const double coefficient = config.number("router_aux_loss_coef", keys.aux_loss_coef);
  if (coefficient < 0)
    config.add_error("router_aux_loss_coef", "is {}, expected 0 or more", coefficient);
  if (config.flag("output_router_logits", false)) {
    if (!keys.has_aux_loss)
      config.add_error("output_router_logits", "is true, but {} has no load balancing loss",
                       spec.family);
    experts.aux_loss_coef = coefficient;
  }
  config.reject("router_jitter_noise");
  if (spec.activation != Activation::kSilu && spec.activation != Activation::kGeluTanh)
    config.add_error(keys.activation, "is neither silu nor gelu_pytorch_tanh, which experts need");
  spec.experts = experts;
  for (LayerSpec& layer : spec.layers) layer.experts = true;
}

void require_width(ConfigReader& config, const char* key, int64_t width) {
  if (width > kMaxExpertWidth)
    config.add_error(key, "means a width of {}, expected at most {}", width, kMaxExpertWidth);
}

std::optional<std::vector<int64_t>> read_layer_list(ConfigReader& config, const ModelSpec& spec,
                                                    const char* key) {
  const json* const list = config.find(key);
  if (list == nullptr) return std::nullopt;
  std::vector<int64_t> layers;
  const auto is_layer = [&](const json& entry) {
    return entry.is_number_integer() && entry >= 0 && entry < spec.num_layers;
  };
  if (!list->is_array() || !std::ranges::all_of(*list, is_layer)) {
    config.add_error(key, "is {}, expected a list of layers from 0 to {}", quoted(*list),
                     spec.num_layers - 1);
    return layers;
  }
  for (const json& entry : *list) layers.push_back(entry.get<int64_t>());
  return layers;
}

void read_sparse_layers(ConfigReader& config, ModelSpec& spec) {
  const int64_t step = config.size("decoder_sparse_step", 1);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    spec.layers[layer].experts = (layer + 1) % std::max<int64_t>(step, 1) == 0;
  for (const int64_t layer :
       read_layer_list(config, spec, "mlp_only_layers").value_or(std::vector<int64_t>()))
    spec.layers[layer].experts = false;
}

void read_dense_layers(ConfigReader& config, ModelSpec& spec, int64_t fallback) {
  const double dense = config.number("first_k_dense_replace", static_cast<double>(fallback));
  for (int64_t layer = 0; layer < spec.num_layers && static_cast<double>(layer) < dense; ++layer)
    spec.layers[layer].experts = false;
}

void read_groups(ConfigReader& config, ModelSpec& spec, int64_t groups, int64_t kept) {
  RouterSpec& router = spec.experts->router;
  router.groups = config.size("n_group", groups, kMaxExperts);
  router.kept_groups = config.size("topk_group", kept, kMaxExperts);
  require_multiple(config, "n_routed_experts", spec.experts->num_experts, "n_group", router.groups);
  const int64_t in_group = spec.experts->num_experts / std::max<int64_t>(router.groups, 1);
  if (router.kept_groups > router.groups || router.kept_groups * in_group < spec.experts->top_k)
    config.add_error("topk_group", "is {}, so that {} experts cannot be chosen from {} groups",
                     router.kept_groups, spec.experts->top_k, router.groups);
  if (router.groups > 1 && router.groups_by_two && in_group < 2)
    config.add_error("n_group", "is {}, but a group needs two experts of the {}", router.groups,
                     spec.experts->num_experts);
}

void read_rope_layers(ConfigReader& config, ModelSpec& spec, bool empty_is_missing) {
  constexpr const char* kKey = "no_rope_layers";
  const int64_t interval = config.size("no_rope_layer_interval", 4);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if ((layer + 1) % std::max<int64_t>(interval, 1) == 0)
      spec.layers[layer].rope = LayerRope::kNone;
  }
  const nlohmann::json* layers = config.find(kKey);
  if (layers == nullptr || (empty_is_missing && layers->empty())) return;
  layers = find_layer_entries(config, spec, kKey);
  if (layers == nullptr) return;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const nlohmann::json& entry = (*layers)[layer];
    if (entry != 0 && entry != 1)
      config.add_error(kKey, "has {}; supported are 0 and 1", quoted(entry));
    spec.layers[layer].rope = entry == 1 ? LayerRope::kGlobal : LayerRope::kNone;
  }
}

std::span<const StackedName> expert_names() {
  return kExpertNames;
}

}  // namespace zeroth::model
