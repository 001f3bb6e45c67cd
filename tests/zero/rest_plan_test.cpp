#include "zero/rest_plan.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "offload/shard_store.h"

namespace zeroth::zero {
namespace {

using configs::RestingPlace;
using Kind = configs::OptimizerConfig::Kind;
using Step = configs::OffloadOptimizerConfig::Step;
using Updater = RestPlan::Updater;
constexpr auto kDevice = RestingPlace::kDevice;
constexpr auto kCpu = RestingPlace::kCpu;
constexpr auto kNvme = RestingPlace::kNvme;
using Places = std::vector<RestingPlace>;

UnitPlan units_of(const std::vector<int64_t>& numels, Retention retention = Retention::kRelease) {
  UnitPlan plan;
  for (const int64_t numel : numels) {
    Unit unit{.name = "unit", .layout = FlatLayout(2), .params = {}, .blocks = {}};
    unit.layout.add("weight", {numel});
    unit.retention = retention;
    plan.units.push_back(unit);
  }
  return plan;
}

// On two ranks; the third is not trained.
UnitPlan four_units(Retention retention = Retention::kRelease) {
  UnitPlan plan = units_of({128, 256, 512, 128}, retention);
  plan.units[2].trainable = false;
  return plan;
}

RestPlan plan_of(const configs::ZeroConfig& zero, bool apart = true) {
  configs::Config config;
  config.zero = zero;
  return plan_rest(four_units(), config, apart);
}

Places places(const RestPlan& plan, RestPlan::Rest RestPlan::UnitRest::*kind) {
  Places places;
  for (const auto& unit : plan.units) places.push_back((unit.*kind).place);
  return places;
}
Places updates(const RestPlan& plan) {
  return places(plan, &RestPlan::UnitRest::updates);
}
Places parameters(const RestPlan& plan) {
  return places(plan, &RestPlan::UnitRest::parameters);
}

std::vector<int64_t> elements(Retention retention, RestPlan::Rest RestPlan::UnitRest::*kind) {
  std::vector<int64_t> elements;
  for (const auto& unit : plan_rest(four_units(retention), {}, true).units) {
    elements.push_back((unit.*kind).elements);
  }
  return elements;
}

configs::Config at(RestingPlace optimizer, RestingPlace params) {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  config.zero.offload_optimizer.device = optimizer;
  config.zero.offload_param.device = params;
  config.zero.offload_param.max_in_cpu_elements = 0;
  return config;
}

}  // namespace

TEST_CASE("a rank's share is a shard, or all where nothing is shared") {
  const auto updated = &RestPlan::UnitRest::updates;
  const auto released = &RestPlan::UnitRest::parameters;
  CHECK(elements(Retention::kRelease, updated) == std::vector<int64_t>{64, 128, 0, 64});
  CHECK(elements(Retention::kRelease, released) == std::vector<int64_t>{64, 128, 256, 64});
  CHECK(elements(Retention::kWhole, updated) == std::vector<int64_t>{128, 256, 0, 128});
  CHECK(elements(Retention::kRefresh, released) == std::vector<int64_t>(4, 0));
}

TEST_CASE("without offload everything stays on the device") {
  const RestPlan plan = plan_of({});
  CHECK((updates(plan) == Places(4, kDevice)));
  CHECK((parameters(plan) == Places(4, kDevice)));
  CHECK_FALSE(plan.updates.any);
  CHECK_FALSE(plan.parameters.any);
  CHECK_FALSE(plan.needs_link());
  CHECK_FALSE(plan.gradients_land);
  CHECK_FALSE(plan.update_before_use());
}

TEST_CASE("optimizer state rests elsewhere, but for the first units that a ratio leaves") {
  configs::ZeroConfig zero;
  zero.offload_optimizer.device = kNvme;
  CHECK((updates(plan_of(zero)) == Places{kNvme, kNvme, kDevice, kNvme}));
  zero.offload_optimizer.ratio = 0.7;  // 77 of 256 elements may stay: the first unit
  CHECK((updates(plan_of(zero)) == Places{kDevice, kNvme, kDevice, kNvme}));
  zero.offload_optimizer.ratio = 0.2;  // 205: two units, and the third has nothing
  CHECK((updates(plan_of(zero)) == Places{kDevice, kDevice, kDevice, kNvme}));
  zero.offload_optimizer.ratio = 0;
  CHECK((updates(plan_of(zero)) == Places(4, kDevice)));
}

TEST_CASE("parameters rest in a file, but for the first units that max_in_cpu keeps on the host") {
  configs::ZeroConfig zero;
  zero.offload_param.device = kNvme;
  zero.offload_param.max_in_cpu_elements = 0;
  CHECK((parameters(plan_of(zero)) == Places(4, kNvme)));
  CHECK(plan_of(zero).parameters.tile_bytes == 4 * 256);
  zero.offload_param.max_in_cpu_elements = 192;
  CHECK((parameters(plan_of(zero)) == Places{kCpu, kCpu, kNvme, kNvme}));
  CHECK((parameters(plan_of(zero, /*apart=*/false)) == Places{kDevice, kDevice, kNvme, kNvme}));
  zero.offload_param.max_in_cpu_elements = 191;
  CHECK((parameters(plan_of(zero)) == Places{kCpu, kNvme, kNvme, kNvme}));
  zero.offload_param.device = kCpu;
  CHECK((parameters(plan_of(zero)) == Places(4, kCpu)));
}

TEST_CASE("who updates, what lands, what is page-locked and what waits follow from the places") {
  struct Case {
    RestingPlace optimizer, params;
    Step step;
    bool apart;
    Updater updater;
    bool lands, pinned, link, waits;
  };
  const Case kCases[] = {
      {kDevice, kDevice, Step::kAuto, true, Updater::kDevice, false, false, false, false},
      {kCpu, kDevice, Step::kAuto, true, Updater::kMeasured, true, true, true, true},
      {kCpu, kDevice, Step::kCpu, true, Updater::kHost, true, false, true, true},
      {kNvme, kDevice, Step::kGpu, true, Updater::kDevice, true, true, true, true},
      {kDevice, kCpu, Step::kAuto, true, Updater::kDevice, false, false, true, false},
      {kDevice, kNvme, Step::kAuto, true, Updater::kDevice, false, false, true, true},
      // Where the host is the device, a file is the only other place.
      {kCpu, kCpu, Step::kAuto, false, Updater::kDevice, false, false, false, false},
      {kNvme, kCpu, Step::kGpu, false, Updater::kDevice, false, false, false, true},
      {kCpu, kNvme, Step::kCpu, false, Updater::kDevice, false, false, false, true},
  };
  for (const Case& c : kCases) {
    CAPTURE(&c - kCases);
    configs::Config config = at(c.optimizer, c.params);
    config.zero.offload_optimizer.step = c.step;
    const RestPlan plan = plan_rest(four_units(), config, c.apart);
    CHECK((plan.updater == c.updater));
    CHECK(plan.gradients_land == c.lands);
    CHECK(plan.updates.pinned == c.pinned);
    CHECK(plan.needs_link() == c.link);
    CHECK(plan.link_pinned == (c.apart && c.link));
    CHECK(plan.update_before_use() == c.waits);
  }
}

TEST_CASE("arrays are the rule's states, and a master that is no copy of the parameters") {
  configs::Config config = at(kNvme, kDevice);
  RestPlan plan = plan_rest(four_units(), config, true);
  CHECK(plan.arrays.count() == 3);
  CHECK((plan.arrays.master == torch::kFloat));
  CHECK(plan.arrays.state_bytes() == 8);
  CHECK((plan.gradient == torch::kBFloat16));
  config.batch.accumulation_steps = 2;
  CHECK((plan_rest(four_units(), config, true).gradient == torch::kFloat));
  config.precision = configs::Precision::kFp32;
  plan = plan_rest(four_units(), config, true);
  CHECK(plan.arrays.count() == 2);
  CHECK(plan.arrays.master_bytes() == 0);
  // SGD without momentum has nothing to rest: in fp32 there is no file.
  config.optimizer.kind = Kind::kSgd;
  CHECK_FALSE(plan_rest(four_units(), config, true).updates.any);
  CHECK_FALSE(plan_rest(four_units(), config, true).needs_link());
  config.optimizer.momentum = 0.9;
  CHECK(plan_rest(four_units(), config, true).updates.any);
}

TEST_CASE(
    "tiles of a file are at most sub_group_size, on its grid; buffers fit the largest share") {
  configs::Config config = at(kNvme, kDevice);
  config.zero.offload_optimizer.buffer_count = 5;
  const auto plan = [&](int64_t numel) { return plan_rest(units_of({numel}), config, true); };
  const RestPlan usual = plan(int64_t{1} << 30);
  CHECK(usual.tile_elements == int64_t{4} << 20);
  CHECK(usual.updates.buffers == 15);
  CHECK(usual.updates.leases() == 12);
  CHECK(usual.updates.buffer_bytes == 4 * usual.tile_elements);
  config.zero.sub_group_size_elements = 3 * offload::kTileGrid + 1;
  CHECK(plan(int64_t{1} << 30).tile_elements == 3 * offload::kTileGrid);
  config.zero.sub_group_size_elements = 1;
  CHECK(plan(int64_t{1} << 30).tile_elements == offload::kTileGrid);
  CHECK(plan(200).updates.buffer_bytes == offload::kTileGrid);
}

TEST_CASE("what a GPU updates in host memory is copied to it four uses ahead, from a file one") {
  const auto depth = [](RestingPlace place, Step step, bool apart) {
    configs::Config config = at(place, kDevice);
    config.zero.offload_optimizer.step = step;
    const AwayPlan updates = plan_rest(four_units(), config, apart).updates;
    CHECK(updates.tiles_in_use == 3);
    return updates.depth;
  };
  CHECK(depth(kCpu, Step::kGpu, true) == 12);
  CHECK(depth(kCpu, Step::kAuto, true) == 12);  // the device may be the faster one
  CHECK(depth(kCpu, Step::kCpu, true) == 3);
  CHECK(depth(kNvme, Step::kGpu, true) == 3);
  CHECK(depth(kNvme, Step::kGpu, false) == 3);
}

TEST_CASE("what the device's side borrows leaves a buffer of parameters to an update") {
  configs::Config config = at(kDevice, kNvme);
  CHECK(plan_rest(four_units(), config, true).parameters.leases() == 4);
  config.zero.offload_param.device = kCpu;
  CHECK(plan_rest(four_units(), config, true).parameters.leases() == SIZE_MAX);
}

TEST_CASE("a buffer that cannot hold the largest shard of parameters names the smallest that can") {
  configs::Config config = at(kDevice, kNvme);
  config.zero.offload_param.buffer_size_elements = 256;
  CHECK(plan_rest(four_units(), config, false).parameters.buffer_bytes == offload::kTileGrid);
  config.zero.offload_param.buffer_size_elements = configs::kBufferSizeAsNeeded;
  CHECK(plan_rest(four_units(), config, false).parameters.buffers > 0);
  CHECK(plan_rest(four_units(), config, false).param_buffer_elements == 256);
  config.zero.offload_param.buffer_size_elements = 255;
  std::string message;
  try {
    plan_rest(four_units(), config, false);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("offload_param.buffer_size is 255") != std::string::npos);
  CHECK(message.find("smallest value that works is 256") != std::string::npos);
}

}  // namespace zeroth::zero
