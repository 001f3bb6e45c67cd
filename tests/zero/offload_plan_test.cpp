#include "zero/offload_plan.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "offload/shard_store.h"
#include "zero/unit.h"

namespace zeroth::zero::offload_plan_test {
namespace {

using configs::OffloadDevice;
using Kind = configs::OptimizerConfig::Kind;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;
using OptimizerDevice = OffloadPlan::OptimizerDevice;
constexpr auto kDevice = OffloadDevice::kNone;
constexpr auto kCpu = OffloadDevice::kCpu;
constexpr auto kNvme = OffloadDevice::kNvme;
using Places = std::vector<OffloadDevice>;

UnitPlan units_of(const std::vector<int64_t>& numels,
                  GatherPolicy gather_policy = GatherPolicy::kBeforeUse) {
  UnitPlan plan;
  for (const int64_t numel : numels) {
    Unit unit{.name = "unit", .layout = FlatLayout(2), .params = {}, .blocks = {}};
    unit.layout.add("weight", {numel});
    unit.gather_policy = gather_policy;
    plan.units.push_back(unit);
  }
  return plan;
}

// On two ranks; the third is not trained.
UnitPlan four_units(GatherPolicy gather_policy = GatherPolicy::kBeforeUse) {
  UnitPlan plan = units_of({128, 256, 512, 128}, gather_policy);
  plan.units[2].trainable = false;
  return plan;
}

OffloadPlan plan_of(const configs::ZeroConfig& zero, bool separate_device = true) {
  configs::Config config;
  config.zero = zero;
  return plan_offload(four_units(), config, separate_device);
}

Places places(const OffloadPlan& plan,
              OffloadPlan::ShardPlacement OffloadPlan::UnitPlacement::*kind) {
  Places places;
  for (const auto& unit : plan.units) places.push_back((unit.*kind).device);
  return places;
}
Places updates(const OffloadPlan& plan) {
  return places(plan, &OffloadPlan::UnitPlacement::updates);
}
Places parameters(const OffloadPlan& plan) {
  return places(plan, &OffloadPlan::UnitPlacement::parameters);
}

std::vector<int64_t> elements(GatherPolicy gather_policy,
                              OffloadPlan::ShardPlacement OffloadPlan::UnitPlacement::*kind) {
  std::vector<int64_t> elements;
  for (const auto& unit : plan_offload(four_units(gather_policy), {}, true).units) {
    elements.push_back((unit.*kind).elements);
  }
  return elements;
}

configs::Config at(OffloadDevice optimizer, OffloadDevice params) {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  config.zero.offload_optimizer.device = optimizer;
  config.zero.offload_param.device = params;
  config.zero.offload_param.max_in_cpu_elements = 0;
  return config;
}

}  // namespace

TEST_CASE("a rank's share is a shard, or all where nothing is shared") {
  const auto updated = &OffloadPlan::UnitPlacement::updates;
  const auto released = &OffloadPlan::UnitPlacement::parameters;
  CHECK(elements(GatherPolicy::kBeforeUse, updated) == std::vector<int64_t>{64, 128, 0, 64});
  CHECK(elements(GatherPolicy::kBeforeUse, released) == std::vector<int64_t>{64, 128, 256, 64});
  CHECK(elements(GatherPolicy::kNever, updated) == std::vector<int64_t>{128, 256, 0, 128});
  CHECK(elements(GatherPolicy::kAfterUpdate, released) == std::vector<int64_t>(4, 0));
}

TEST_CASE("without offload everything stays on the device") {
  const OffloadPlan plan = plan_of({});
  CHECK((updates(plan) == Places(4, kDevice)));
  CHECK((parameters(plan) == Places(4, kDevice)));
  CHECK_FALSE(plan.updates.any);
  CHECK_FALSE(plan.parameters.any);
  CHECK_FALSE(plan.needs_link());
  CHECK_FALSE(plan.offload_gradients);
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
  CHECK((parameters(plan_of(zero, /*separate_device=*/false)) ==
         Places{kDevice, kDevice, kNvme, kNvme}));
  zero.offload_param.max_in_cpu_elements = 191;
  CHECK((parameters(plan_of(zero)) == Places{kCpu, kNvme, kNvme, kNvme}));
  zero.offload_param.device = kCpu;
  CHECK((parameters(plan_of(zero)) == Places(4, kCpu)));
}

TEST_CASE("who updates, what lands, what is page-locked and what waits follow from the places") {
  struct Case {
    OffloadDevice optimizer, params;
    Step step;
    bool separate_device;
    OptimizerDevice optimizer_device;
    bool lands, pinned, link, waits;
  };
  const Case kCases[] = {
      {kDevice, kDevice, Step::kAuto, true, OptimizerDevice::kGpu, false, false, false, false},
      {kCpu, kDevice, Step::kAuto, true, OptimizerDevice::kAuto, true, true, true, true},
      {kCpu, kDevice, Step::kCpu, true, OptimizerDevice::kCpu, true, false, true, true},
      {kNvme, kDevice, Step::kGpu, true, OptimizerDevice::kGpu, true, true, true, true},
      {kDevice, kCpu, Step::kAuto, true, OptimizerDevice::kGpu, false, false, true, false},
      {kDevice, kNvme, Step::kAuto, true, OptimizerDevice::kGpu, false, false, true, true},
      // Where the host is the device, a file is the only other place.
      {kCpu, kCpu, Step::kAuto, false, OptimizerDevice::kGpu, false, false, false, false},
      {kNvme, kCpu, Step::kGpu, false, OptimizerDevice::kGpu, false, false, false, true},
      {kCpu, kNvme, Step::kCpu, false, OptimizerDevice::kGpu, false, false, false, true},
  };
  for (const Case& c : kCases) {
    CAPTURE(&c - kCases);
    configs::Config config = at(c.optimizer, c.params);
    config.zero.offload_optimizer.step = c.step;
    const OffloadPlan plan = plan_offload(four_units(), config, c.separate_device);
    CHECK((plan.optimizer_device == c.optimizer_device));
    CHECK(plan.offload_gradients == c.lands);
    CHECK(plan.updates.pinned == c.pinned);
    CHECK(plan.needs_link() == c.link);
    CHECK(plan.link_pinned == (c.separate_device && c.link));
    CHECK(plan.update_before_use() == c.waits);
  }
}

TEST_CASE("arrays are the rule's states, and a master that is no copy of the parameters") {
  configs::Config config = at(kNvme, kDevice);
  OffloadPlan plan = plan_offload(four_units(), config, true);
  CHECK(plan.arrays.count() == 3);
  CHECK((plan.arrays.master == torch::kFloat));
  CHECK(plan.arrays.state_bytes(100) == 800);
  CHECK((plan.gradient == torch::kBFloat16));
  config.batch.accumulation_steps = 2;
  CHECK((plan_offload(four_units(), config, true).gradient == torch::kFloat));
  config.precision = configs::Precision::kFp32;
  plan = plan_offload(four_units(), config, true);
  CHECK(plan.arrays.count() == 2);
  CHECK(plan.arrays.master_bytes() == 0);
  // SGD without momentum has nothing to rest: in fp32 there is no file.
  config.optimizer.kind = Kind::kSgd;
  CHECK_FALSE(plan_offload(four_units(), config, true).updates.any);
  CHECK_FALSE(plan_offload(four_units(), config, true).needs_link());
  config.optimizer.momentum = 0.9;
  CHECK(plan_offload(four_units(), config, true).updates.any);
}

TEST_CASE(
    "tiles of a file are at most sub_group_size, on its grid; buffers fit the largest share") {
  configs::Config config = at(kNvme, kDevice);
  config.zero.offload_optimizer.buffer_count = 5;
  const auto plan = [&](int64_t numel) { return plan_offload(units_of({numel}), config, true); };
  const OffloadPlan usual = plan(int64_t{1} << 30);
  CHECK(usual.tile_elements == int64_t{4} << 20);
  CHECK(usual.updates.buffers == 15);
  CHECK(usual.updates.leases() == 12);
  CHECK(usual.updates.buffer_bytes == 4 * usual.tile_elements);
  config.zero.sub_group_size_elements = 3 * offload::kChunkAlignment + 1;
  CHECK(plan(int64_t{1} << 30).tile_elements == 3 * offload::kChunkAlignment);
  config.zero.sub_group_size_elements = 1;
  CHECK(plan(int64_t{1} << 30).tile_elements == offload::kChunkAlignment);
  CHECK(plan(200).updates.buffer_bytes == offload::kChunkAlignment);
}

TEST_CASE("what a GPU updates in host memory is copied to it four uses ahead, from a file one") {
  const auto depth = [](OffloadDevice place, Step step, bool separate_device) {
    configs::Config config = at(place, kDevice);
    config.zero.offload_optimizer.step = step;
    const TensorOffload updates = plan_offload(four_units(), config, separate_device).updates;
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
  CHECK(plan_offload(four_units(), config, true).parameters.leases() == 4);
  config.zero.offload_param.device = kCpu;
  CHECK(plan_offload(four_units(), config, true).parameters.leases() == SIZE_MAX);
}

TEST_CASE("a buffer that cannot hold the largest shard of parameters names the smallest that can") {
  configs::Config config = at(kDevice, kNvme);
  config.zero.offload_param.buffer_size_elements = 256;
  CHECK(plan_offload(four_units(), config, false).parameters.buffer_bytes ==
        offload::kChunkAlignment);
  config.zero.offload_param.buffer_size_elements = configs::kBufferSizeAsNeeded;
  CHECK(plan_offload(four_units(), config, false).parameters.buffers > 0);
  CHECK(plan_offload(four_units(), config, false).param_buffer_elements == 256);
  config.zero.offload_param.buffer_size_elements = 255;
  std::string message;
  try {
    plan_offload(four_units(), config, false);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("offload_param.buffer_size is 255") != std::string::npos);
  CHECK(message.find("smallest value that works is 256") != std::string::npos);
}

}  // namespace zeroth::zero::offload_plan_test
