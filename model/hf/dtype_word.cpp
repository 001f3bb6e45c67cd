#include "model/hf/dtype_word.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace zeroth::model {
namespace {

constexpr std::array<std::pair<torch::Dtype, std::string_view>, 3> kWords = {
    {{torch::kFloat32, "F32"}, {torch::kBFloat16, "BF16"}, {torch::kFloat16, "F16"}}};

}  // namespace

std::string_view word_of(torch::Dtype dtype) {
  for (const auto& [type, word] : kWords) {
    if (type == dtype) return word;
  }
  ZEROTH_CHECK(false, "no checkpoint holds {}", c10::toString(dtype));
  return {};
}

std::optional<torch::Dtype> dtype_of_word(std::string_view word) {
  for (const auto& [type, own] : kWords) {
    if (own == word) return type;
  }
  return std::nullopt;
}

}  // namespace zeroth::model
