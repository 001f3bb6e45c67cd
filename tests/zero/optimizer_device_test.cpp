#include "zero/optimizer_device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/host_link.h"
#include "engine/memory/activation_probe.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "zero/memory_plan.h"
#include "zero/offload_plan.h"
#include "zero/shard_stores.h"
#include "zero/unit.h"

namespace zeroth::zero::optimizer_device_test {
namespace {

constexpr UpdateBytes kAdamBf16 = {.parameter = 2, .to_device = 14, .to_host = 12};

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
class Locked final : public device::PagePinner {
 public:
  std::string pin(std::span<std::byte> memory) override {
    now_ += static_cast<int64_t>(memory.size());
    max_in_flight_ = std::max(max_in_flight_, now_);
    return "";
  }
  void unpin(std::span<std::byte> memory) noexcept override {
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
  const OptimizerDeviceChoice choice =
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

TEST_CASE("the GPU updates where the link carries the states faster than the host updates") {
  struct Case {
    UpdateRates rates;
    bool on_device;
  };
  const Case cases[] = {
      {{25e9, 25e9, 3e9}, false},   // PCIe 4, many cores: 0.33 s against 0.56
      {{25e9, 25e9, 0.5e9}, true},  // few cores: 2 s against 0.56
      {{55e9, 55e9, 3e9}, true},    // PCIe 5: 0.25 s
      {{300e9, 300e9, 3e9}, true},  // NVLink to the host
      {{55e9, 10e9, 0.9e9}, false}  // slow one way: 1.2 s against 1.1
  };
  for (const Case& c : cases) {
    CAPTURE(c.rates.host_elements_per_s);
    CHECK(choose_optimizer_device(c.rates, kAdamBf16).on_device == c.on_device);
  }
}

TEST_CASE("the seconds are those of each way's slowest part, and the reason holds them") {
  const OptimizerDeviceChoice choice = choose_optimizer_device({20e9, 10e9, 2e9}, kAdamBf16);
  CHECK(choice.host_s == doctest::Approx(0.5));
  CHECK(choice.device_s == doctest::Approx(1.2));
  CHECK(choice.why ==
        "updates on the host: 0.50 s per 1B elements on the host during the next forward (2.00B "
        "elements/s), 1.20 s on the GPU between its blocks (link 20.0 GB/s to the GPU, 10.0 GB/s "
        "back)");
  // A link so slow that the parameters' way back is what the host waits for.
  CHECK(choose_optimizer_device({2e9, 10e9, 4e9}, kAdamBf16).host_s == doctest::Approx(1.0));
}

TEST_CASE("equal times leave the update on the host") {
  CHECK_FALSE(choose_optimizer_device({14e9, 14e9, 1e9}, kAdamBf16).on_device);
}

TEST_CASE("a rate that was not measured is a broken invariant") {
  CHECK_THROWS_AS(choose_optimizer_device({25e9, 25e9, 0}, kAdamBf16), InternalError);
}

TEST_CASE("a rate counts the elements of a call, and the first call warms up") {
  int calls = 0;
  const double rate = measure_rate(1000, [&] {
    std::atomic<int> sum = 0;
    for (int i = 0; i < 100'000; ++i) sum += i;
    ++calls;
  });
  CHECK(calls >= 2);
  CHECK(rate > 0);
  CHECK(rate < 1000 / 1e-6);  // 100,000 additions take more than a microsecond
}

TEST_CASE("a rate is that of the middle call, and ranks meet before each that counts") {
  using Clock = std::chrono::steady_clock;
  int calls = 0, met = 0;
  std::vector<Clock::time_point> begins, ends;  // of what is measured: a little more, a little less
  std::vector<double> slowest;
  const auto work = [&] {
    const auto begin = Clock::now();
    CHECK(met == calls);  // the first call warms up
    const int slow[] = {0, 40, 1, 10, 10, 40};
    std::this_thread::sleep_for(std::chrono::milliseconds(slow[calls++]));
    if (calls > 1) slowest.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  };
  const double rate = measure_rate(1000, work, [&] {
    ends.push_back(Clock::now());
    ++met;
    begins.push_back(Clock::now());
  });
  ends.push_back(Clock::now());
  CHECK(calls == 6);
  REQUIRE(met == 5);
  std::vector<double> fastest;
  for (size_t i = 0; i < begins.size(); ++i) {
    fastest.push_back(std::chrono::duration<double>(ends[i + 1] - begins[i]).count());
  }
  std::sort(slowest.begin(), slowest.end());
  std::sort(fastest.begin(), fastest.end());
  CHECK(rate <= 1000 / slowest[2]);
  CHECK(rate >= 1000 / fastest[2]);
}

TEST_CASE("the link is measured both ways") {
  device::HostLink link{device::HostMemory(), device::make_copy_stream(torch::kCPU)};
  int met = 0;
  const UpdateRates rates = measure_link(
      link, torch::kCPU, [&] { ++met; }, int64_t{1} << 20);
  CHECK(met == 10);
  CHECK(rates.to_device_bytes_per_s > 1e6);
  CHECK(rates.to_host_bytes_per_s > 1e6);
  CHECK(link.memory.bytes() == 0);  // given back
}

}  // namespace zeroth::zero::optimizer_device_test
