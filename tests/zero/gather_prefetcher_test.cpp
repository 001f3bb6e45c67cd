#include "zero/gather_prefetcher.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "zero/unit.h"

namespace zeroth::zero::gather_prefetcher_test {
namespace {

using Units = std::vector<size_t>;
constexpr PendingUpdate kNone = PendingUpdate::kNone, kInPlace = PendingUpdate::kInPlace;
constexpr PendingUpdate kOverwrite = PendingUpdate::kOverwrite;

// Blocks of one unit each, of 128 elements.
UnitPlan one_each(size_t blocks, GatherPolicy gather_policy = GatherPolicy::kBeforeUse) {
  UnitPlan plan;
  for (size_t block = 0; block < blocks; ++block) {
    Unit unit{.name = std::to_string(block),
              .layout = FlatLayout(2),
              .params = {},
              .blocks = {},
              .gather_policy = gather_policy};
    unit.layout.add("weight", {128});
    plan.units.push_back(unit);
    plan.block_units.push_back({block});
    plan.block_labels.push_back(std::to_string(block));
  }
  return plan;
}

GatherPrefetcher::GatherState nothing(size_t units) {
  return {std::vector<bool>(units, false), std::vector<PendingUpdate>(units, kNone)};
}

}  // namespace

TEST_CASE("a block that was released in between is gathered again") {
  UnitPlan plan = one_each(3);
  using Counts = std::vector<int64_t>;
  const Units step = {0, 1, 2, 1, 0, 0, 1, 2, 1, 0};  // two micro-batches
  CHECK(count_gathers(plan, {}, step) == Counts{3, 4, 2});
  CHECK(count_gathers(plan, {.prefetch_elements = 10000, .max_live_elements = 256}, step) ==
        Counts{3, 1, 2});
  CHECK(count_gathers(plan, {.prefetch_elements = 10000}, step) == Counts{1, 1, 1});
  plan.units[1].gather_policy = GatherPolicy::kAfterUpdate;
  CHECK(count_gathers(plan, {}, step) == Counts{3, 0, 2});
}

TEST_CASE("so many elements are gathered ahead as the limits allow, at least one block") {
  const UnitPlan plan = one_each(5);
  struct Case {
    GatherLimits limits;
    Units first, second;  // units at the visits of blocks 0 and 1
  };
  const Case cases[] = {
      {{.prefetch_elements = 0}, {0}, {1}},
      {{.prefetch_elements = 1}, {0, 1}, {1, 2}},
      {{.prefetch_elements = 255}, {0, 1}, {1, 2}},
      {{.prefetch_elements = 256}, {0, 1, 2}, {1, 2, 3}},
      {{.prefetch_elements = 10000}, {0, 1, 2, 3, 4}, {1, 2, 3, 4, 0}},
      {{.prefetch_elements = 10000, .max_live_elements = 383}, {0, 1}, {1, 2}},
      {{.prefetch_elements = 10000, .max_live_elements = 384}, {0, 1, 2}, {1, 2, 3}},
      {{.prefetch_elements = 10000, .max_live_elements = 0}, {0}, {1}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.limits.prefetch_elements);
    CAPTURE(c.limits.max_live_elements);
    GatherPrefetcher ahead(plan, c.limits);
    ahead.set_access_order({0, 1, 2, 3, 4, 0});
    CHECK(ahead.access(0, nothing(5)) == c.first);
    CHECK(ahead.access(1, nothing(5)) == c.second);
  }
}

TEST_CASE("what is whole costs nothing ahead, and no update but the next block's is waited for") {
  const UnitPlan plan = one_each(5, GatherPolicy::kAfterUpdate);
  GatherPrefetcher ahead(plan, {.prefetch_elements = 200});
  GatherPrefetcher::GatherState now = nothing(5);
  now.present = {true, true, true, false, false};
  ahead.set_access_order({0, 1, 2, 3, 4});
  CHECK(ahead.access(0, now) == Units{0, 1, 2, 3});
  now.updates = {kNone, kNone, kInPlace, kOverwrite, kNone};
  CHECK(ahead.access(1, now) == Units{1, 2});
  ahead.set_access_order({1, 4, 2});
  now.present = {true, true, true, true, true};
  CHECK(ahead.access(1, now) == Units{1, 4, 2});
}

TEST_CASE("what is whole costs nothing ahead beside a unit that is updated, before or behind it") {
  for (const Units& second : {Units{1, 2}, Units{2, 1}}) {
    UnitPlan plan = one_each(4, GatherPolicy::kAfterUpdate);
    plan.block_units = {{0}, second, {3}};
    GatherPrefetcher ahead(plan, {.prefetch_elements = 256});
    GatherPrefetcher::GatherState now = nothing(4);
    now.present = {true, true, true, false};
    now.updates[1] = kInPlace;
    ahead.set_access_order({0, 1, 2});
    CHECK(ahead.access(0, now).back() == 3);
  }
}

TEST_CASE("a block that is used again wants what it wanted, and no more ahead") {
  const UnitPlan plan = one_each(5, GatherPolicy::kAfterUpdate);
  GatherPrefetcher ahead(plan, {.prefetch_elements = 128});
  ahead.set_access_order({0, 1, 2, 3, 4});
  GatherPrefetcher::GatherState now = nothing(5);
  CHECK(ahead.access(0, now) == Units{0, 1});
  now.present = {true, true, false, false, false};
  CHECK(ahead.access(0, now) == Units{0, 1});
  CHECK(ahead.access(1, now) == Units{1, 2});
  CHECK(ahead.access(1, now) == Units{1, 2});
  CHECK_THROWS_AS((void)ahead.access(3, now), InternalError);
}

TEST_CASE("without expected visits a block's own units are wanted") {
  const UnitPlan plan = one_each(3);
  GatherPrefetcher ahead(plan, {.prefetch_elements = 10000});
  CHECK(ahead.access(2, nothing(3)) == Units{2});
  ahead.set_access_order({0, 1});
  CHECK_THROWS_AS((void)ahead.access(1, nothing(3)), InternalError);
}

TEST_CASE("reads follow the gathers, and pass no update that waits") {
  const UnitPlan plan = one_each(4);
  struct Case {
    int64_t prefetch;
    std::vector<PendingUpdate> updates;
    Units reads;
  };
  const std::vector<PendingUpdate> none(4, kNone), over(4, kOverwrite), change(4, kInPlace);
  const Case cases[] = {
      // Forward and backward; the last block stays.
      {0, none, {0, 1, 2, 3, 2, 1, 0}},
      {1, none, {0, 1, 2, 3, 1, 0}},
      // Nothing that is written first, and nothing behind the last update.
      {0, over, {}},
      {1, over, {}},
      // What an update changes it reads.
      {0, change, {0, 1, 2, 3}},
      {1, change, {0, 1, 2, 3}},
      {0, {kNone, kOverwrite, kNone, kNone}, {0}},
      {0, {kNone, kNone, kInPlace, kNone}, {0, 1, 2}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.prefetch);
    CAPTURE(c.reads);
    GatherPrefetcher ahead(plan, {.prefetch_elements = c.prefetch});
    ahead.set_access_order({0, 1, 2, 3, 3, 2, 1, 0});
    GatherPrefetcher::GatherState now = nothing(4);
    now.updates = c.updates;
    CHECK(ahead.reads(now) == c.reads);
  }
}

TEST_CASE("units that are whole are not read, nor those that are never released") {
  UnitPlan plan = one_each(3);
  plan.units[1].gather_policy = GatherPolicy::kNever;
  GatherPrefetcher ahead(plan, {});
  GatherPrefetcher::GatherState now = nothing(3);
  now.present = {true, true, false};
  ahead.set_access_order({0, 1, 2, 0});
  CHECK(ahead.reads(now) == Units{2, 0});
}

TEST_CASE("a live limit below two neighbours names the smallest that works") {
  const UnitPlan plan = one_each(3);
  std::string message;
  try {
    const GatherPrefetcher ahead(plan, {.max_live_elements = 10});
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("stage3_max_live_parameters is 10") != std::string::npos);
  CHECK(message.ends_with("the smallest value that works is 256"));
  CHECK_NOTHROW(GatherPrefetcher(plan, {.max_live_elements = 256}));
  CHECK_THROWS_AS(GatherPrefetcher(plan, {.max_live_elements = 255}), Error);
}

}  // namespace zeroth::zero::gather_prefetcher_test
