#include "zero/resting_places.h"

#include <doctest/doctest.h>

namespace zeroth::zero {
namespace {

using configs::RestingPlace;
constexpr auto kDevice = RestingPlace::kDevice;
constexpr auto kCpu = RestingPlace::kCpu;
constexpr auto kNvme = RestingPlace::kNvme;
using Places = std::vector<RestingPlace>;

// Four units of 128, 256, 512 and 128 elements on two ranks; the third is not trained.
UnitPlan four_units(Retention retention) {
  UnitPlan plan;
  for (const int64_t numel : {128, 256, 512, 128}) {
    Unit unit{"unit", true, FlatLayout(2), {}, {}, false};
    unit.layout.add("weight", {numel});
    unit.retention = retention;
    plan.units.push_back(unit);
  }
  plan.units[2].trainable = false;
  return plan;
}

RestingPlaces places(const configs::ZeroConfig& zero, Retention retention = Retention::kRelease) {
  return resting_places(four_units(retention), zero);
}

}  // namespace

TEST_CASE("a rank's share is a shard, or all where nothing is shared") {
  CHECK(places({}).updated == std::vector<int64_t>{64, 128, 0, 64});
  CHECK(places({}).released == std::vector<int64_t>{64, 128, 256, 64});
  CHECK(places({}, Retention::kWhole).updated == std::vector<int64_t>{128, 256, 0, 128});
  CHECK(places({}, Retention::kRefresh).released == std::vector<int64_t>(4, 0));
}

TEST_CASE("without offload everything stays on the device") {
  CHECK((places({}).updates == Places(4, kDevice)));
  CHECK((places({}).parameters == Places(4, kDevice)));
  CHECK(places({}).largest_update_in_file() == 0);
}

TEST_CASE("optimizer state rests elsewhere, but for the first units that a ratio leaves") {
  configs::ZeroConfig zero;
  zero.offload_optimizer.device = kNvme;
  CHECK((places(zero).updates == Places{kNvme, kNvme, kDevice, kNvme}));
  CHECK(places(zero).largest_update_in_file() == 128);
  zero.offload_optimizer.ratio = 0.7;  // 77 of 256 elements may stay: the first unit
  CHECK((places(zero).updates == Places{kDevice, kNvme, kDevice, kNvme}));
  zero.offload_optimizer.ratio = 0.2;  // 205: two units, and the third has nothing
  CHECK((places(zero).updates == Places{kDevice, kDevice, kDevice, kNvme}));
  CHECK(places(zero).largest_update_in_file() == 64);
  zero.offload_optimizer.ratio = 0;
  CHECK((places(zero).updates == Places(4, kDevice)));
}

TEST_CASE("parameters rest in a file, but for the first units that max_in_cpu keeps on the host") {
  configs::ZeroConfig zero;
  zero.offload_param.device = kNvme;
  zero.offload_param.max_in_cpu_elements = 0;
  CHECK((places(zero).parameters == Places(4, kNvme)));
  CHECK(places(zero).largest_parameters_in_file() == 256);
  zero.offload_param.max_in_cpu_elements = 192;
  CHECK((places(zero).parameters == Places{kCpu, kCpu, kNvme, kNvme}));
  zero.offload_param.max_in_cpu_elements = 191;
  CHECK((places(zero).parameters == Places{kCpu, kNvme, kNvme, kNvme}));
  zero.offload_param.device = kCpu;
  CHECK((places(zero).parameters == Places(4, kCpu)));
}

}  // namespace zeroth::zero
