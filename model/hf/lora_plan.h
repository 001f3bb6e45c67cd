// The choice of a model's modules that get adapters, and of the parameters that are trained beside
// them, by peft's rules on paths of transformers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "configs/lora_config.h"
#include "model/hf/model_modules.h"
#include "model/spec.h"

namespace zeroth::model {

// A LoraModule is the adapter of one product or embedding.
struct LoraModule {
  int64_t r = 0;
  double scale = 0;  // factor on the adapter's result
  bool operator==(const LoraModule&) const = default;
};

struct LoraPlan {
  // By the canonical path of the product or table: "layers.0.attention.q", "embedding", "head",
  // "embedding.positions".
  std::map<std::string, LoraModule> modules;
  // Canonical names of parameters of the model that are trained, too: those of modules_to_save, and
  // biases.
  std::set<std::string> trained;
  // True: modules_to_save names embedding or head of a model in which they share one weight. The
  // head then has a weight of its own, as in peft.
  bool unties_head = false;
  double dropout = 0;  // probability that an element of an adapter's input becomes 0 in training
  configs::LoraConfig::Init init = configs::LoraConfig::Init::kKaiming;  // of new factors

  bool operator==(const LoraPlan&) const = default;
};

// Returns the plan. Throws one Error that lists every problem: a key of section lora that is
// malformed, selects nothing, or selects a module that cannot have an adapter, with paths that
// exist.
LoraPlan plan_lora(const ModelSpec& spec, const configs::LoraConfig& config);

// Returns whether a module with this path gets an adapter, by target_modules, exclude_modules,
// modules_to_save, layers_to_transform and layers_pattern alone. "all-linear" is no pattern here.
bool is_lora_target(std::string_view path, const configs::LoraConfig& config);

// Returns the rank and the scale of a module with this path, by the patterns.
LoraModule lora_module(std::string_view path, const configs::LoraConfig& config);

// Returns target_modules as peft saves it: the paths that "all-linear" selects, the family's usual
// names if none are set, and for 20 names or more the shortest ends of paths that select the same
// modules. Throws an Error if none are set and the family has no usual ones.
configs::ModuleNames resolved_targets(const ModelSpec& spec, const configs::LoraConfig& config);

}  // namespace zeroth::model
