// Precisions in which models and states are saved, by safetensors' words.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>

namespace zeroth::model {

// "F32", "BF16" or "F16" of float32, bfloat16 or float16; any other one is an InternalError.
std::string_view dtype_name(torch::Dtype dtype);
// And back; nothing for other words.
std::optional<torch::Dtype> parse_dtype(std::string_view name);

}  // namespace zeroth::model
