// The resolved sections `lora` and `quantization` of ds_config.json: adapters that are trained in
// place of the model (LoRA, arXiv 2106.09685), in the words and with the defaults of peft's
// LoraConfig, over weights in 4 bits (QLoRA, arXiv 2305.14314), in those of transformers'
// BitsAndBytesConfig.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace zeroth::configs {

// ModuleNames selects modules of a model by their paths in transformers
// ("model.layers.0.mlp.up_proj").
inline constexpr char kAllLinear[] = "all-linear";  // files may have it in any case, as in peft

struct ModuleNames {
  // A regular expression that matches full paths; "all-linear": every product but the head's. If it
  // is empty, `names` select.
  std::string pattern = {};
  std::vector<std::string> names = {};  // full paths, or their ends after a dot

  bool is_all_linear() const { return pattern == kAllLinear; }
  bool is_set() const { return !pattern.empty() || !names.empty(); }
  bool operator==(const ModuleNames&) const = default;
};

// PatternValues has values by regular expressions of modules: the first one that matches the end of
// a module's path, after a dot or from its begin, counts.
using PatternValues = std::vector<std::pair<std::string, double>>;

struct LoraConfig {
  // Biases that are trained beside adapters: of the whole model, or of the modules with adapters.
  enum class Bias { kNone, kAll, kLoraOnly };
  // Initial values of the factors A and B of a product. B starts at zero, except with kRandom: then
  // both are drawn as A is with kKaiming.
  enum class Init {
    kKaiming,   // init_lora_weights true: A uniform within 1 / sqrt(inputs)
    kGaussian,  // A normal with deviation 1 / r
    kRandom     // init_lora_weights false
  };

  // True: the model is frozen, and adapters are trained.
  bool enabled = false;
  // Rank: number of rows of A, and of columns of B.
  int64_t r = 8;
  // The adapter's result is multiplied by alpha / r, or with rsLoRA by alpha / sqrt(r).
  double alpha = 8;
  bool use_rslora = false;
  // Probability that an element of an adapter's input becomes 0 in training.
  double dropout = 0;
  // Modules with adapters. Not set: those that peft chooses for the model's family.
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  // Layers whose modules get adapters; empty: all. Requires names as target_modules.
  std::vector<int64_t> layers_to_transform = {};
  // Names of the list of layers in a path ("layers"); empty: the first number counts.
  std::vector<std::string> layers_pattern = {};
  PatternValues rank_pattern = {};   // r of some modules
  PatternValues alpha_pattern = {};  // alpha of some modules
  // Modules that are trained in full, and saved with the adapter.
  std::vector<std::string> modules_to_save = {};
  Bias bias = Bias::kNone;
  Init init = Init::kKaiming;
};

struct QuantizationConfig {
  std::string type = "nf4";  // the only one
  // Keeps the frozen weights of the layers' products in NF4: about 0.53 bytes for each.
  bool nf4_weights = false;
  // Quantizes the scales of the blocks, too: 4.13 bits for a weight in place of 4.5.
  bool nested_scales = false;
};

}  // namespace zeroth::configs
