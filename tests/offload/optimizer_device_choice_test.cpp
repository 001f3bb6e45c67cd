#include "offload/optimizer_device_choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"

namespace zeroth::offload {
namespace {

constexpr UpdateBytes kAdamBf16 = {.parameter = 2, .to_device = 14, .to_host = 12};

}  // namespace

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

}  // namespace zeroth::offload
