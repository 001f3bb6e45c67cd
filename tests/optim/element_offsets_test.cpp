#include "optim/element_offsets.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::optim::element_offsets_test {
namespace {

constexpr int64_t kHalf = int64_t{1} << 32;

// One by one.
int64_t number_of(const kernel::ElementOffsets& offsets, int64_t element) {
  int64_t number = offsets.first;
  int64_t left = offsets.left;
  for (int64_t i = 0; i < element; ++i) {
    ++number;
    if (--left > 0) continue;
    number += offsets.gap;
    left = offsets.length;
  }
  return number;
}

}  // namespace

TEST_CASE("elements of a part are numbered in runs, wherever the first one lies") {
  for (const int64_t first : {int64_t{0}, kHalf - 1, kHalf - 40, 3 * kHalf - 100}) {
    for (const int64_t left : {1, 5, 64}) {
      for (const int64_t gap : {1, 70, 1000}) {
        const std::vector<OffsetSpan> parts = {
            {3, {.first = first, .left = left, .length = 64, .gap = gap}}};
        for (int64_t begin = 3; begin < 300; begin += 7) {
          for (int64_t at = begin; at < 400;) {
            const auto [end, offsets] = offset_run(parts, at, 400);
            REQUIRE(end > at);
            REQUIRE(end <= 400);
            for (int64_t element = at; element < end; ++element) {
              const int64_t expected = number_of(parts[0].offsets, element - 3);
              CHECK(number_of(offsets, element - at) == expected);
              CHECK(expected / kHalf == offsets.first / kHalf);
            }
            if (end < 400) {
              CHECK(number_of(offsets, end - at) / kHalf > offsets.first / kHalf);
            }
            at = end;
          }
        }
      }
    }
  }
}

TEST_CASE("a run ends with its part, and what lies in none has its index") {
  const std::vector<OffsetSpan> parts = {{10, {.first = 500}}, {20, {.first = 7}}};
  CHECK(offset_run(parts, 4, 30).end == 10);
  CHECK(offset_run(parts, 4, 30).offsets.first == 4);
  CHECK(offset_run(parts, 12, 30).end == 20);
  CHECK(offset_run(parts, 12, 15).end == 15);
  CHECK(offset_run(parts, 12, 30).offsets.first == 502);
  CHECK(offset_run(parts, 25, 30).end == 30);
  CHECK(offset_run(parts, 25, 30).offsets.first == 12);
  CHECK(offset_run({}, kHalf - 2, kHalf + 5).end == kHalf);
  CHECK(offset_run({}, kHalf, kHalf + 5).end == kHalf + 5);
}

}  // namespace zeroth::optim::element_offsets_test
