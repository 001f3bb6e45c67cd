#include "monitor/curves.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json/json.h"
#include "tests/support/temp_folder.h"

namespace zeroth::monitor::curves_test {
namespace {

// As a later program gets them.
Curves restored(const Curves& curves, std::vector<std::string> names, size_t max_points) {
  const auto tree = parse_json(curves.to_json().dump(), {.name = "curves"});
  Curves again(std::move(names), max_points);
  again.restore(JsonView(tree));
  return again;
}

void add_step(Curves& curves, int64_t step) {
  const double x = static_cast<double>(step);
  curves.add(step, {step % 7 == 0 ? NAN : std::sin(x) / 3, 1 / x});
}

}  // namespace

TEST_CASE("as long as there is room, every step is a point") {
  Curves curves({"loss", "lr"}, 4);
  for (int step = 1; step <= 4; ++step) curves.add(step, {1.0 * step, 0.5});
  CHECK(curves.xs() == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(curves.value(0, 2) == 3);
  CHECK(curves.value(1, 3) == 0.5);
  CHECK(curves.steps_per_point() == 1);
}

TEST_CASE("beyond it neighbours become their mean, and later steps join in") {
  Curves curves({"loss"}, 4);
  for (int step = 1; step <= 7; ++step) curves.add(step, {1.0 * step});
  CHECK(curves.steps_per_point() == 2);
  CHECK(curves.xs() == std::vector<int64_t>{2, 4, 6, 7});
  CHECK(curves.value(0, 0) == 1.5);
  CHECK(curves.value(0, 2) == 5.5);
  CHECK(curves.value(0, 3) == 7);
  for (int step = 8; step <= 9; ++step) curves.add(step, {1.0 * step});
  CHECK(curves.steps_per_point() == 4);
  CHECK(curves.xs() == std::vector<int64_t>{4, 8, 9});
  CHECK(curves.value(0, 1) == 6.5);
}

TEST_CASE("a long run stays small") {
  Curves curves({"loss"}, 16);
  for (int step = 1; step <= 100'000; ++step) curves.add(step, {1});
  CHECK(curves.size() <= 16);
  CHECK(curves.size() >= 8);
  CHECK(curves.xs().back() == 100'000);
}

TEST_CASE("what is not finite enters no mean, and a point without a number is a NaN") {
  Curves curves({"loss"}, 2);
  curves.add(1, {NAN});
  CHECK(std::isnan(curves.value(0, 0)));
  curves.add(2, {4});
  curves.add(3, {INFINITY});
  CHECK(curves.value(0, 0) == 4);
  CHECK(std::isnan(curves.value(0, 1)));
}

TEST_CASE("curves that are saved and restored anywhere go on as if nothing had been") {
  for (const int64_t until : {0, 1, 2, 7, 8, 9, 16, 17, 23, 32, 33, 100, 129}) {
    Curves whole({"loss", "lr"}, 8), before = whole;
    for (int64_t step = 1; step <= 200; ++step) add_step(whole, step);
    for (int64_t step = 1; step <= until; ++step) add_step(before, step);
    Curves after = restored(before, {"loss", "lr"}, 8);
    CHECK(after.to_json() == before.to_json());
    for (int64_t step = until + 1; step <= 200; ++step) add_step(after, step);
    CHECK(after.to_json().dump() == whole.to_json().dump());
    CHECK(after.xs() == whole.xs());
    for (size_t i = 0; i < whole.size(); ++i) {
      CHECK(std::bit_cast<uint64_t>(after.value(0, i)) ==
            std::bit_cast<uint64_t>(whole.value(0, i)));
    }
  }
}

TEST_CASE("a curve that a saved run did not have begins where it goes on") {
  Curves before({"loss"}, 4);
  for (int64_t step = 1; step <= 3; ++step) before.add(step, {2.0});
  Curves after = restored(before, {"norm", "loss"}, 4);
  after.add(4, {5, 3});
  CHECK(std::isnan(after.value(0, 2)));
  CHECK(after.value(0, 3) == 5);
  CHECK(after.value(1, 2) == 2);
}

TEST_CASE("curves that nobody saved are refused by what is wrong, and nothing of them is taken") {
  Curves curves({"loss"}, 4);
  curves.add(1, {2.5});
  const nlohmann::json good = curves.to_json();
  const auto refused = [&](const char* patch) {
    const nlohmann::json tree = good.patch(parse_json(patch, {.name = "patch"}));
    return message_of<Error>([&] { curves.restore(JsonView(tree, "steps")); });
  };
  CHECK(refused(R"([{"op": "replace", "path": "/stride", "value": 3}])") ==
        "steps.stride is 3, expected a power of two");
  CHECK(refused(R"([{"op": "replace", "path": "/stride", "value": -9223372036854775808}])")
            .starts_with("steps.stride is -9223372036854775808, expected an integer in 1.."));
  CHECK(refused(R"([{"op": "replace", "path": "/in_last", "value": 0}])") ==
        "steps.in_last is 0, expected an integer in 1..1");
  CHECK(refused(R"([{"op": "replace", "path": "/xs", "value": [5, 4]}])")
            .starts_with("steps.xs[1] is 4, expected an integer in 5.."));
  CHECK(refused(R"([{"op": "replace", "path": "/xs", "value": [1, 2, 3, 4, 5]}])") ==
        "steps.xs has 5 points, at most 4 are kept");
  CHECK(refused(R"([{"op": "remove", "path": "/curves"}])") == "steps.curves is missing");
  CHECK(refused(R"([{"op": "replace", "path": "/curves/loss/sums", "value": []}])") ==
        "steps.curves.loss.sums has 0 numbers, expected 1");
  CHECK(refused(R"([{"op": "replace", "path": "/curves/loss/sums", "value": [null]}])") ==
        "steps.curves.loss.sums[0] is null, expected a number, inf or nan");
  CHECK(refused(R"([{"op": "replace", "path": "", "value": 7}])") ==
        "steps is 7, expected an object");
  CHECK(curves.to_json() == good);
}

}  // namespace zeroth::monitor::curves_test
