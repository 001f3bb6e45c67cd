// Types of elements as safetensors files call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zeroth {

// Bytes of an element of "F32", "BF16", "U8", ...; nothing where the word is not known.
std::optional<int64_t> element_size(std::string_view dtype);

}  // namespace zeroth
