#include "model/hf/model_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "model/hf/checkpoint_map.h"

namespace zeroth::model {
namespace {

using Kind = ModelModule::Kind;

class ModuleList {
 public:
  explicit ModuleList(const ModelSpec& spec) : spec_(spec) {}

  void add(Kind kind, const std::string& canonical, bool bias = false) {
    ModelModule module{kind, {}, canonical, {matrix_of(canonical)}};
    if (bias) module.parameters.push_back(canonical + ".bias");
    module.path = parent(stored_name(spec_, module.parameters.front()));
    append(std::move(module));
  }

  void add_latent(const std::string& label) {
    if (spec_.latent->q_rank > 0) {
      add(Kind::kProduct, label + "q_a", spec_.qkv_bias);
      add(Kind::kNorm, label + "q_norm");
      add(Kind::kProduct, label + "q_b");
    } else {
      add(Kind::kProduct, label + "q");
    }
    add(Kind::kProduct, label + "kv_a", spec_.qkv_bias);
    add(Kind::kNorm, label + "kv_norm");
    add(Kind::kProduct, label + "kv_b");
  }

  // Adds the modules that hold these parameters.
  void add_bare(const std::vector<std::string>& parameters) {
    for (const std::string& parameter : parameters) {
      const std::string path = parent(stored_name(spec_, parameter));
      const auto same = indices_.find(path);
      if (same != indices_.end()) {
        modules_[same->second].parameters.push_back(parameter);
      } else {
        append({Kind::kBare, path, parent(parameter), {parameter}});
      }
    }
  }

  void add_norm(const std::string& canonical) {
    if (spec_.norm.weight) add(Kind::kNorm, canonical, spec_.norm.bias);
  }

  void add_mlp(const std::string& label) {
    if (spec_.gated_mlp && spec_.fused_gate_up) {
      add(Kind::kProduct, label + "gate_up", spec_.mlp_bias);
    } else if (spec_.gated_mlp) {
      add(Kind::kProduct, label + "gate", spec_.mlp_bias);
    }
    if (!spec_.gated_mlp || !spec_.fused_gate_up) add(Kind::kProduct, label + "up", spec_.mlp_bias);
    if (spec_.activation == Activation::kXielu) {
      const std::string activation = label + "activation.";
      add_bare({activation + "alpha_p", activation + "alpha_n", activation + "beta",
                activation + "eps"});
    }
    add(Kind::kProduct, label + "down", spec_.mlp_bias);
  }

  void add_experts(const std::string& label) {
    const ExpertsSpec& experts = *spec_.experts;
    std::vector<std::string> router;
    if (experts.router.has_scales) {
      add(Kind::kProduct, label + "router.proj");
      router = {label + "router.scale", label + "router.per_expert_scale"};
    } else {
      router = {label + "router.weight"};
    }
    if (experts.router.bias) router.push_back(label + "router.bias");
    if (experts.router.correction_bias) router.push_back(label + "router.correction_bias");
    add_bare(router);
    std::vector<std::string> matrices = {label + "experts.gate_up", label + "experts.down"};
    if (experts.bias) {
      matrices.push_back(label + "experts.gate_up_bias");
      matrices.push_back(label + "experts.down_bias");
    }
    add_bare(matrices);
    if (experts.shared_intermediate_size == 0) return;
    add_mlp(label + "shared.");
    if (experts.shared_gate) add(Kind::kProduct, label + "shared_gate");
  }

  void add_attention(const std::string& label, const LayerSpec& layer) {
    const bool has_k = !layer.kv_layer;
    if (spec_.latent) {
      add_latent(label + "latent.");
    } else if (spec_.qkv_layout == QkvLayout::kSeparate) {
      add(Kind::kProduct, label + "q", spec_.qkv_bias);
      if (has_k) add(Kind::kProduct, label + "k", spec_.qkv_bias);
      if (has_k && !layer.k_is_v) add(Kind::kProduct, label + "v", spec_.qkv_bias);
    } else {
      add(Kind::kProduct, label + "qkv", spec_.qkv_bias);
    }
    if (spec_.qk_norm != QkNorm::kNone && spec_.qk_norm_spec.weight) {
      add(Kind::kNorm, label + "q_norm", spec_.qk_norm_spec.bias);
      if (has_k) add(Kind::kNorm, label + "k_norm", spec_.qk_norm_spec.bias);
    }
    add(Kind::kProduct, label + "o", spec_.o_bias);
  }

  void add_delta_net(const std::string& label) {
    add_bare({label + "A_log", label + "dt_bias"});
    const std::vector<const char*> products =
        spec_.delta_net->fused ? std::vector{"qkvz", "ba"} : std::vector{"qkv", "z", "b", "a"};
    for (const char* name : products) add(Kind::kProduct, label + name);
    add_bare({label + "conv.weight"});
    add(Kind::kNorm, label + "norm");
    add(Kind::kProduct, label + "o");
  }

  void add_short_conv(const std::string& label) {
    const bool bias = spec_.short_conv->bias;
    add(Kind::kProduct, label + "in", bias);
    std::vector<std::string> depthwise = {label + "depthwise.weight"};
    if (bias) depthwise.push_back(label + "depthwise.bias");
    add_bare(depthwise);
    add(Kind::kProduct, label + "out", bias);
  }

  void add_mixer(const std::string& label, const LayerSpec& layer) {
    switch (layer.mixer) {
      case LayerMixer::kAttention:
        return add_attention(label, layer);
      case LayerMixer::kDeltaNet:
        return add_delta_net(label);
      case LayerMixer::kShortConv:
        return add_short_conv(label);
    }
  }

  void add_layer(const std::string& label, int64_t index) {
    const LayerSpec& layer = spec_.layer(index);
    const bool before = spec_.norm_placement != NormPlacement::kPost;
    const bool after = spec_.norm_placement != NormPlacement::kPre;
    if (before) add_norm(label + "attention_norm");
    add_mixer(label + mixer_module(layer.mixer) + ".", layer);
    const std::string attention = parent(modules_.back().path);
    if (after) add_norm(label + "attention_post_norm");
    if (before && spec_.parallel_residual != ParallelResidual::kOneNorm)
      add_norm(label + "mlp_norm");
    if (spec_.sinks) add_bare({label + "attention.sinks"});
    const bool has_mlp = spec_.has_mlp(index);
    if (layer.experts && has_mlp) {
      add_experts(label + "experts.");
      for (const char* name : {"mlp_branch_norm", "experts_norm", "experts_post_norm"})
        add_norm(label + name);
    } else if (layer.experts) {
      add_experts(label + "mlp.");
    }
    if (has_mlp) {
      add_mlp(label + "mlp.");
      others_.insert(parent(modules_.back().path) + (spec_.family == "gpt2" ? ".act" : ".act_fn"));
    }
    const std::string mlp = parent(modules_.back().path);
    if (after) add_norm(label + "mlp_post_norm");
    if (spec_.per_layer_input) {
      add(Kind::kProduct, label + "per_layer_gate");
      add(Kind::kProduct, label + "per_layer_projection");
      add_norm(label + "per_layer_norm");
    }
    if (spec_.layer_scalar) add_bare({label + "layer_scalar"});
    if (spec_.family == "gpt2")
      others_.insert({attention + ".attn_dropout", attention + ".resid_dropout", mlp + ".dropout"});
  }

  // Adds the modules that hold those with parameters, and all others.
  std::vector<ModelModule> finish() {
    others_.insert(spec_.family == "gpt2" ? "transformer.drop" : "model.rotary_emb");
    for (const ModelModule& module : modules_) {
      for (std::string path = parent(module.path); !path.empty(); path = parent(path))
        others_.insert(path);
    }
    for (const std::string& path : others_) {
      if (!indices_.contains(path)) append({Kind::kOther, path, {}, {}});
    }
    return std::move(modules_);
  }

 private:
  static std::string parent(const std::string& path) {
    const size_t dot = path.rfind('.');
    return dot == path.npos ? std::string() : path.substr(0, dot);
  }

  void append(ModelModule module) {
    indices_.emplace(module.path, modules_.size());
    modules_.push_back(std::move(module));
  }

  const ModelSpec& spec_;
  std::vector<ModelModule> modules_;
  std::map<std::string, size_t> indices_;  // of modules_, by path
  std::set<std::string> others_;
};

}  // namespace

std::string matrix_of(std::string_view module) {
  return module == kPositionsModule ? std::string(module) : std::string(module) + ".weight";
}

std::string module_of(std::string_view parameter) {
  return std::string(parameter == kPositionsModule ? parameter
                                                   : parameter.substr(0, parameter.rfind('.')));
}

bool is_trainable(std::string_view parameter) {
  constexpr std::string_view kConstants[] = {".correction_bias", ".activation.beta",
                                             ".activation.eps", ".layer_scalar"};
  return std::ranges::none_of(kConstants,
                              [&](std::string_view end) { return parameter.ends_with(end); });
}

std::vector<ModelModule> list_modules(const ModelSpec& spec) {
  ModuleList list(spec);
  list.add(Kind::kEmbedding, "embedding");
  if (spec.learned_positions) list.add(Kind::kPositions, kPositionsModule);
  if (spec.embedding_norm) list.add_norm("embedding.norm");
  if (spec.per_layer_input) {
    list.add_bare({"embedding.per_layer.weight"});
    list.add(Kind::kProduct, "embedding.per_layer.projection");
    list.add_norm("embedding.per_layer.norm");
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    list.add_layer(fmt::format("layers.{}.", layer), layer);
  list.add_norm("head.norm");
  list.add(Kind::kHead, "head", spec.head_bias);
  return list.finish();
}

}  // namespace zeroth::model
