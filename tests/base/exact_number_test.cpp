#include "base/json/json_view.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/json/json.h"
#include "tests/support/temp_folder.h"

namespace zeroth::exact_number_test {
namespace {

double through_text(double value) {
  const nlohmann::json tree = parse_json(exact_number(value).dump(), {.name = "x.json"});
  return exact_number(JsonView(tree));
}

uint64_t bits(double value) {
  return std::bit_cast<uint64_t>(value);
}

}  // namespace

TEST_CASE("doubles come back from JSON bit by bit") {
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1.0 / 3, 6.2594989776611328, 1e22, 1e300,
                             Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min(),
                             1 + Limits::epsilon(), 9007199254740993.0, Limits::infinity(),
                             -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN()}) {
    CHECK_MESSAGE(bits(through_text(value)) == bits(value), value);
  }
  uint64_t seed = 1;
  for (int i = 0; i < 20'000; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const double value = std::bit_cast<double>(seed);
    if (!std::isnan(value)) CHECK(bits(through_text(value)) == bits(value));
  }
}

TEST_CASE("what is no number is refused by its path") {
  for (const char* text : {R"("NaN")", R"("infinity")", R"("")", "null", "[1]", "true"}) {
    const nlohmann::json tree = parse_json(text, {.name = "x.json"});
    CHECK(message_of<Error>([&] { exact_number(JsonView(tree, "loss")); }) ==
          fmt::format("loss is {}, expected a number, inf or nan", text));
  }
}

}  // namespace zeroth::exact_number_test
