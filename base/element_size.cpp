#include "base/element_size.h"

#include <algorithm>
#include <iterator>

namespace zeroth {
namespace {

struct Element {
  std::string_view dtype;
  int64_t bytes;
};
constexpr Element kElements[] = {{"F64", 8},     {"I64", 8},     {"U64", 8},  {"F32", 4},
                                 {"I32", 4},     {"U32", 4},     {"F16", 2},  {"I16", 2},
                                 {"U16", 2},     {"BF16", 2},    {"BOOL", 1}, {"I8", 1},
                                 {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1}};

}  // namespace

std::optional<int64_t> element_size(std::string_view dtype) {
  const auto* const found =
      std::find_if(std::begin(kElements), std::end(kElements),
                   [&](const Element& element) { return element.dtype == dtype; });
  return found == std::end(kElements) ? std::nullopt : std::optional(found->bytes);
}

}  // namespace zeroth
