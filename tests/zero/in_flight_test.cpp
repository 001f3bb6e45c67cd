#include "zero/grad_exchange.h"

#include <doctest/doctest.h>

#include <vector>

namespace zeroth::zero::in_flight_test {
namespace {

// What was retired after each of the pushes 0, 1, 2, ... of `elements` elements.
std::vector<int> retired_after(size_t max_reductions, int64_t max_elements,
                               const std::vector<int64_t>& elements) {
  std::vector<int> counts;
  int retired = 0;
  InFlight<int> in_flight(max_reductions, max_elements, [&](int id) { CHECK(id == retired++); });
  for (size_t id = 0; id < elements.size(); ++id) {
    in_flight.push(static_cast<int>(id), elements[id]);
    counts.push_back(retired);
  }
  in_flight.drain();
  CHECK(retired == static_cast<int>(elements.size()));
  return counts;
}

}  // namespace

TEST_CASE("the oldest reductions are retired beyond the number that may overlap") {
  CHECK((retired_after(2, 100, {1, 1, 1, 1}) == std::vector<int>{0, 0, 1, 2}));
  CHECK((retired_after(0, 100, {1, 1}) == std::vector<int>{1, 2}));
}

TEST_CASE("elements under way are limited, but one reduction always may") {
  CHECK((retired_after(9, 10, {6, 4, 1, 30, 1}) == std::vector<int>{0, 0, 1, 3, 4}));
}

}  // namespace zeroth::zero::in_flight_test
