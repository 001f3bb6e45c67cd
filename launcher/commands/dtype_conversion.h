// Conversion of a tensor's elements to another precision, rounded to nearest, ties to even.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace zeroth::launcher {

enum class Dtype { kF32, kBf16, kF16 };

// Parses "F32", "BF16", "F16" of safetensors; empty for others.
std::optional<Dtype> parse_dtype(std::string_view safetensors_name);
const char* safetensors_name(Dtype dtype);
const char* config_name(Dtype dtype);  // "float32": in a model's config.json
size_t element_bytes(Dtype dtype);

// Converts as many elements as both spans hold. Returns the first value that is not finite before
// or after conversion; empty if there is none.
std::optional<float> convert(std::span<const std::byte> from, Dtype from_dtype,
                             std::span<std::byte> to, Dtype to_dtype);

}  // namespace zeroth::launcher
