// Sizes of the element types of safetensors files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zeroth {

// Returns the bytes of one element of "F32", "BF16", "U8", ..., or nullopt if `dtype` is unknown.
std::optional<int64_t> element_size(std::string_view dtype);

}  // namespace zeroth
