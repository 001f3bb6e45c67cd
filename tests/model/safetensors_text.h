// Hand-made safetensors files.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeroth::model {

inline std::string with_header(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), 8);
  return text + header + std::string(data_bytes, '\0');
}

// A header entry of fp32 values.
inline std::string entry(const std::string& name, const std::string& shape, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})", name, shape,
                     begin, end);
}

}  // namespace zeroth::model
