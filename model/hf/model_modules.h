// The modules of a model as transformers builds it: on their paths adapters are targeted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace zeroth::model {

// A ModelModule is a module of a model as transformers builds it.
struct ModelModule {
  enum class Kind {
    kProduct,
    kEmbedding,
    kPositions,  // table of learned positions
    kNorm,
    kHead,
    kBare,  // parameters without a product of their own: a router, experts, sinks, xIELU
    kOther  // holds other modules ("model.layers.0.mlp"), or no parameter (an activation)
  };
  Kind kind = Kind::kOther;
  std::string path;                     // in transformers: "model.layers.0.self_attn.q_proj"
  std::string canonical;                // "layers.0.attention.q"; empty for kOther
  std::vector<std::string> parameters;  // canonical names; none for kOther
};

// Returns all modules of the model: those with parameters in the order of the blocks, then the
// others. Targets are matched on these alone. Their parameters are exactly those of build_blocks().
std::vector<ModelModule> list_modules(const ModelSpec& spec);
// Returns whether training can change a parameter: it is no correction bias of a router and no
// constant of xIELU.
bool is_trainable(std::string_view parameter);

// Modules, by their canonical paths, with a matrix that is looked up, not multiplied.
inline constexpr char kPositionsModule[] = "embedding.positions";
constexpr bool is_embedding(std::string_view module) {
  return module == "embedding" || module == kPositionsModule;
}
// Returns the canonical name of a module's matrix, and the module of a parameter.
std::string matrix_of(std::string_view module);
std::string module_of(std::string_view parameter);

}  // namespace zeroth::model
