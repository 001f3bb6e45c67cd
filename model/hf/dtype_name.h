// Names that safetensors uses for the precisions in which models and states are saved.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>

namespace zeroth::model {

// Returns "F32", "BF16" or "F16" for float32, bfloat16 or float16. Throws an InternalError for any
// other dtype.
std::string_view dtype_name(torch::Dtype dtype);
// Returns the dtype with this name; nullopt for other names.
std::optional<torch::Dtype> parse_dtype(std::string_view name);

}  // namespace zeroth::model
