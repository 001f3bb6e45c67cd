#include "optim/coded_states.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/dynamic_map.h"
#include "tests/optim/cpu_arrays.h"

namespace zeroth::optim::coded_states_test {
namespace {

using kernel::kCodeBlock;

// Nearest by search of all codes: the smaller magnitude of two that are equally near to fp32.
uint8_t nearest(float value, float maximum, bool is_signed) {
  static const std::array<float, 256> kMaps[] = {dynamic_map(false), dynamic_map(true)};
  const auto& map = kMaps[is_signed ? 1 : 0];
  const float x = value * (1 / maximum);
  int best = is_signed ? 127 : 0;
  for (int code = 0; code < 256; ++code) {
    if ((map[code] > 0) != (x > 0) || map[code] == 0) continue;
    const float middle = (map[code] + map[best]) / 2;
    const bool is_larger = std::abs(map[code]) > std::abs(map[best]);
    if (is_larger == (std::abs(x) > std::abs(middle))) best = code;
  }
  return static_cast<uint8_t>(best);
}

}  // namespace

TEST_CASE("a code is the nearest to its value, and codes are fixed points") {
  std::vector<float> block(kCodeBlock);
  std::vector<uint8_t> codes(kCodeBlock);
  for (const bool is_signed : {true, false}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      for (size_t i = 0; i < block.size(); ++i) {
        const float value = std::clamp(number(seed * 1000 + i), -1e18F, 1e18F);
        block[i] = is_signed ? value : std::abs(value);
      }
      const float maximum = kernel::encode(block.data(), kCodeBlock, codes.data(), is_signed);
      int64_t wrong = 0;
      for (size_t i = 0; i < block.size(); ++i) {
        wrong += codes[i] != nearest(block[i], maximum, is_signed);
      }
      CHECK(wrong == 0);
    }
    const std::array<float, 256> map = dynamic_map(is_signed);
    CHECK(kernel::encode(map.data(), kCodeBlock, codes.data(), is_signed) == 1);
    for (int code = 0; code < 256; ++code) CHECK(codes[code] == code);
  }
}

TEST_CASE("an interval of magnitudes has at most one midpoint, whose rank a lookup finds") {
  for (const bool is_signed : {true, false}) {
    const kernel::CodeTable& table = kernel::code_tables().of(is_signed);
    const auto below = [&](float x) {
      return std::ranges::lower_bound(table.midpoints, x) - std::begin(table.midpoints);
    };
    CHECK(table.midpoints[0] > std::bit_cast<float>(kernel::CodeTable::kFirstBits));
    for (size_t i = 0; i < kernel::CodeTable::kIntervals; ++i) {
      const uint32_t begin = kernel::CodeTable::kFirstBits + (static_cast<uint32_t>(i) << 16);
      CHECK(table.ranks[i] == below(std::bit_cast<float>(begin)));
      CHECK(below(std::bit_cast<float>(begin + 0xffff)) - table.ranks[i] <= 1);
    }
  }
}

TEST_CASE("a block of zeros, of tiny and of huge values has finite moments") {
  std::vector<uint8_t> codes(3);
  const auto round_trip = [&](std::vector<float> values, bool is_signed) {
    const float maximum = kernel::encode(values.data(), 3, codes.data(), is_signed);
    for (size_t i = 0; i < 3; ++i) values[i] = kernel::decode(codes[i], maximum, is_signed);
    return values;
  };
  CHECK(round_trip({0, 0, 0}, false) == std::vector<float>{0, 0, 0});
  CHECK(round_trip({0, -0.0F, 0}, true) == std::vector<float>{0, 0, 0});
  CHECK(codes == std::vector<uint8_t>{127, 127, 127});
  constexpr float kLargest = std::numeric_limits<float>::max();
  CHECK(round_trip({std::numeric_limits<float>::infinity(), 0, 1}, false) ==
        std::vector<float>{kLargest, 0, 0});
  for (const float value : round_trip({1e-42F, -1e-44F, 0}, true)) CHECK(std::isfinite(value));
}

}  // namespace zeroth::optim::coded_states_test
