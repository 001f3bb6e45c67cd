#include "zero/optimizer_device.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/memory/activation_probe.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "zero/shard_stores.h"

namespace zeroth::zero {
namespace {

using Step = configs::OffloadOptimizerConfig::UpdateDevice;

configs::Config adam(configs::Precision precision, int64_t accumulation) {
  configs::Config config;
  config.precision = precision;
  config.batch = {accumulation, 1, accumulation};
  return config;
}

OffloadPlan rest_of(const configs::Config& config) {
  UnitPlan units = plan_units(testing::make_chain(), 1);
  for (Unit& unit : units.units) unit.gather_policy = GatherPolicy::kBeforeUse;
  return plan_offload(units, config, /*separate_device=*/true);
}

configs::Config on_host(configs::Precision precision) {
  configs::Config config = adam(precision, 1);
  config.zero.offload_optimizer.device = configs::OffloadDevice::kCpu;
  config.zero.offload_optimizer.step = Step::kAuto;
  return config;
}

// Of page-locked memory, the most that there is at a time.
class Locked final : public device::PageLocker {
 public:
  std::string lock(std::span<std::byte> memory) override {
    now_ += static_cast<int64_t>(memory.size());
    max_in_flight_ = std::max(max_in_flight_, now_);
    return "";
  }
  void unlock(std::span<std::byte> memory) noexcept override {
    now_ -= static_cast<int64_t>(memory.size());
  }
  int64_t max_in_flight() const { return max_in_flight_; }

 private:
  int64_t now_ = 0, max_in_flight_ = 0;
};

}  // namespace

TEST_CASE("an element's bytes are those of its states, master, gradient and working weight") {
  configs::Config fp32 = adam(configs::Precision::kFp32, 1);
  configs::Config bf16 = adam(configs::Precision::kBf16, 1);
  CHECK(bytes_per_element(rest_of(fp32)).parameter == 4);
  CHECK(bytes_per_element(rest_of(fp32)).to_device == 8 + 4);
  CHECK(bytes_per_element(rest_of(fp32)).to_host == 8);
  CHECK(bytes_per_element(rest_of(bf16)).parameter == 2);
  CHECK(bytes_per_element(rest_of(bf16)).to_device == 12 + 2);
  CHECK(bytes_per_element(rest_of(bf16)).to_host == 12);
  CHECK(bytes_per_element(rest_of(adam(configs::Precision::kBf16, 4))).to_device == 12 + 4);
  bf16.optimizer.kind = configs::OptimizerConfig::Kind::kLamb;  // reads them for the norms, too
  CHECK(bytes_per_element(rest_of(bf16)).to_device == 2 * 12 + 2);
  CHECK(bytes_per_element(rest_of(bf16)).to_host == 12);
  bf16.optimizer.kind = configs::OptimizerConfig::Kind::kAdamW;
  // Parameters that rest on the host come and go, too: without a master they are it.
  fp32.zero.offload_param.device = configs::OffloadDevice::kCpu;
  bf16.zero.offload_param.device = configs::OffloadDevice::kCpu;
  CHECK(bytes_per_element(rest_of(fp32)).to_device == 8 + 4 + 4);
  CHECK(bytes_per_element(rest_of(fp32)).to_host == 8 + 4);
  CHECK(bytes_per_element(rest_of(bf16)).to_device == 12 + 2);
  CHECK(bytes_per_element(rest_of(bf16)).to_host == 12 + 2);
}

TEST_CASE("both ways to update are measured, and what came out is said") {
  const comm::DeviceMesh mesh(torch::kCPU, comm::make_solo_group());
  const auto link = testing::late_link();
  const configs::Config config = on_host(configs::Precision::kBf16);
  const offload::OptimizerDeviceChoice choice =
      measure_optimizer_device(rest_of(config), config, mesh, *link);
  CHECK(
      choice.why.starts_with(choice.on_device ? "updates on the GPU: " : "updates on the host: "));
  CHECK(testing::copies_of(*link).copies() >= 4);
}

TEST_CASE("measuring takes what is planned for it") {
  // What stands for the device is on the CPU, too: there the larger one of two counts.
  for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
    const configs::Config config = on_host(precision);
    const comm::DeviceMesh mesh(testing::kFakeDevice, comm::make_solo_group());
    const auto locked = std::make_shared<Locked>();
    device::HostLink link{device::HostMemory(locked), std::make_unique<testing::LateCopies>()};
    const auto allocated = std::make_shared<engine::Allocations>();
    const OffloadPlan offload_plan = rest_of(config);
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
      measure_optimizer_device(offload_plan, config, mesh, link);
    }
    const TierBytes planned = calibration_bytes(offload_plan);
    CHECK(planned.pinned == locked->max_in_flight());
    CHECK(planned.device == planned.pinned / 2);
    CHECK(allocated->peak() >= std::max(planned.host, planned.device));
    CHECK(allocated->peak() < std::max(planned.host, planned.device) + 4096);
    CHECK(planned.file == 0);
  }
}

TEST_CASE("nothing is measured, and nothing planned for it, where the configuration says who") {
  configs::Config config = on_host(configs::Precision::kBf16);
  config.zero.offload_optimizer.pin_memory = false;
  CHECK(calibration_bytes(rest_of(config)).pinned == 0);
  for (const Step step : {Step::kCpu, Step::kGpu}) {
    config.zero.offload_optimizer.step = step;
    CHECK(calibration_bytes(rest_of(config)) == TierBytes{});
    const comm::DeviceMesh mesh(testing::kFakeDevice, comm::make_solo_group());
    const auto link = testing::late_link();
    const auto stores = make_shard_stores(rest_of(config), config, mesh, link);
    CHECK(stores.choices.empty());
    CHECK(testing::copies_of(*link).copies() == 0);
  }
}

TEST_CASE("several ranks measure together and choose the same") {
  std::vector<std::string> reasons(3);
  testing::run_ranks(3, [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
    const auto link = testing::late_link();
    const configs::Config config = on_host(configs::Precision::kBf16);
    reasons[static_cast<size_t>(mesh->rank())] =
        measure_optimizer_device(rest_of(config), config, *mesh, *link).why;
  });
  CHECK(reasons[1] == reasons[0]);
  CHECK(reasons[2] == reasons[0]);
}

}  // namespace zeroth::zero
