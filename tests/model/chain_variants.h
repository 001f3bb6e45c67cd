// Small models with what families have beyond Llama, for tests of a chain on several ranks.
#pragma once

#include <string>

#include "model/spec.h"

namespace zeroth::model {

// Returns a model of two or three layers: "llama", or one with the properties of the name.
ModelSpec chain_variant(const std::string& name);

}  // namespace zeroth::model
