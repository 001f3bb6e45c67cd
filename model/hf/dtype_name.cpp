#include "model/hf/dtype_name.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace zeroth::model {
namespace {

constexpr std::array<std::pair<torch::Dtype, std::string_view>, 3> kDtypeNames = {
    {{torch::kFloat32, "F32"}, {torch::kBFloat16, "BF16"}, {torch::kFloat16, "F16"}}};

}  // namespace

std::string_view dtype_name(torch::Dtype dtype) {
  for (const auto& [type, name] : kDtypeNames) {
    if (type == dtype) return name;
  }
  ZEROTH_CHECK(false, "no checkpoint holds {}", c10::toString(dtype));
  return {};
}

std::optional<torch::Dtype> parse_dtype(std::string_view name) {
  for (const auto& [type, known] : kDtypeNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace zeroth::model
