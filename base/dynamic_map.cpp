#include "base/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace zeroth {
namespace {

constexpr int kDecades = 7;
constexpr float kFirst = 0.1F, kLast = 1;

// Returns bound `index` of a decade's `count` intervals of equal length, rounded as LibTorch's
// linspace rounds it: from the nearer end, once.
float interval_bound(int index, int count) {
  const float length = (kLast - kFirst) / static_cast<float>(count);
  return index < (count + 1) / 2 ? std::fma(length, static_cast<float>(index), kFirst)
                                 : std::fma(-length, static_cast<float>(count - index), kLast);
}

}  // namespace

std::array<float, 256> dynamic_map(bool is_signed) {
  std::array<float, 256> values = {};  // the value that no loop sets is 0
  size_t used = 0;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int count = 1 << (is_signed ? decade : decade + 1);
    const auto scale = static_cast<float>(std::pow(10.0, decade - (kDecades - 1)));
    for (int i = 0; i < count; ++i) {
      const float middle = (interval_bound(i, count) + interval_bound(i + 1, count)) / 2;
      values[used++] = scale * middle;
      if (is_signed) values[used++] = -scale * middle;
    }
  }
  values[used] = 1;
  std::ranges::sort(values);
  return values;
}

}  // namespace zeroth
