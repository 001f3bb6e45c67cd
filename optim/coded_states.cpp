#include "optim/coded_states.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/dynamic_map.h"

namespace zeroth::optim::kernel {
namespace {

CodeTable make_table(bool is_signed) {
  CodeTable table = {};
  const std::array<float, 256> values = dynamic_map(is_signed);
  std::ranges::copy(values, table.values);
  std::ranges::fill(table.midpoints, std::numeric_limits<float>::infinity());
  const size_t zero = is_signed ? CodeTables::kZeroCode : 0;
  const size_t midpoints = values.size() - 1 - zero;
  for (size_t i = 0; i < midpoints; ++i) {
    table.midpoints[i] = (values[zero + i] + values[zero + i + 1]) / 2;
  }
  size_t rank = 0;
  for (size_t i = 0; i < CodeTable::kIntervals; ++i) {
    const uint32_t begin = CodeTable::kFirstBits + (static_cast<uint32_t>(i) << 16);
    while (table.midpoints[rank] < std::bit_cast<float>(begin)) ++rank;
    table.ranks[i] = static_cast<uint8_t>(rank);
  }
  return table;
}

}  // namespace

const CodeTables& code_tables() {
  static const CodeTables tables = {
      {make_table(/*is_signed=*/false), make_table(/*is_signed=*/true)}};
  return tables;
}

float decode(uint8_t code, float maximum, bool is_signed) {
  return code_tables().of(is_signed).values[code] * maximum;
}

float encode(const float* block, int64_t count, uint8_t* codes, bool is_signed) {
  float maximum = 0;
  for (int64_t i = 0; i < count; ++i) maximum = std::max(maximum, std::abs(block[i]));
  maximum = std::min(maximum, std::numeric_limits<float>::max());
  const float inverse = 1 / std::max(maximum, std::numeric_limits<float>::min());
  const auto& midpoints = code_tables().of(is_signed).midpoints;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::min(std::abs(block[i]) * inverse, 1.0F);
    const auto rank =
        static_cast<uint32_t>(std::ranges::lower_bound(midpoints, magnitude) - midpoints);
    constexpr uint32_t kZero = CodeTables::kZeroCode;
    const uint32_t code = !is_signed               ? rank
                          : std::signbit(block[i]) ? kZero - std::min(rank, kZero)
                                                   : kZero + rank;
    codes[i] = static_cast<uint8_t>(code);
  }
  return maximum;
}

}  // namespace zeroth::optim::kernel
