#include "device/host_link.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"

namespace zeroth::device::host_link_test {
namespace {

struct CountingPinner final : PagePinner {
  std::string pin(std::span<std::byte> memory) override {
    ++asked;
    if (locked + memory.size() > limit) return "no more than the limit";
    locked += memory.size();
    return "";
  }
  void unpin(std::span<std::byte> memory) noexcept override { locked -= memory.size(); }

  size_t limit = std::numeric_limits<size_t>::max();
  size_t locked = 0;
  int asked = 0;
};

}  // namespace

TEST_CASE("host memory is zero and takes its bytes rounded up to a page, not to a power of two") {
  const auto pinner = std::make_shared<CountingPinner>();
  HostMemory memory(pinner);
  const torch::Tensor values = memory.zeros(1'500'000, torch::kFloat);
  CHECK(at::equal(values, torch::zeros({1'500'000})));
  CHECK(memory.bytes() == 6'000'640);
  CHECK(memory.pinned_bytes() == memory.bytes());
  CHECK(pinner->locked == 6'000'640);
  CHECK((memory.zeros(3, torch::kBFloat16).scalar_type() == torch::kBFloat16));
  CHECK(memory.notes().empty());
}

TEST_CASE("all pages of host memory are there before they are locked: all threads made them") {
  struct Looks final : PagePinner {
    std::string pin(std::span<std::byte> memory) override {
      std::vector<unsigned char> there(memory.size() / sysconf(_SC_PAGESIZE));
      REQUIRE(mincore(memory.data(), memory.size(), there.data()) == 0);
      missing =
          std::count_if(there.begin(), there.end(), [](auto page) { return (page & 1) == 0; });
      return "";
    }
    void unpin(std::span<std::byte>) noexcept override {}
    int64_t missing = -1;
  };
  const auto pinner = std::make_shared<Looks>();
  HostMemory(pinner).zeros((int64_t{130} << 20) + 5, torch::kByte);
  CHECK(pinner->missing == 0);
}

TEST_CASE("host memory is unlocked and given back with the last tensor on it") {
  const auto pinner = std::make_shared<CountingPinner>();
  torch::Tensor part;
  {
    HostMemory memory(pinner);
    part = memory.zeros(4096, torch::kFloat).narrow(0, 1000, 10);
    part.fill_(3);
  }
  CHECK(pinner->locked == 4096 * 4);
  CHECK(part.sum().item<float>() == 30);
  part = torch::Tensor();
  CHECK(pinner->locked == 0);
}

TEST_CASE("after a refusal all memory stays pageable, which is reported once") {
  const auto pinner = std::make_shared<CountingPinner>();
  pinner->limit = 8192;
  HostMemory memory(pinner);
  const torch::Tensor first = memory.zeros(4096, torch::kByte);
  const torch::Tensor second = memory.zeros(100'000, torch::kByte);
  const torch::Tensor third = memory.zeros(4096, torch::kByte);
  CHECK(pinner->asked == 2);
  CHECK(memory.pinned_bytes() == 4096);
  CHECK(at::equal(second, torch::zeros({100'000}, torch::kByte)));
  REQUIRE(memory.notes().size() == 1);
  CHECK(memory.notes()[0].find("no more than the limit") != std::string::npos);
}

TEST_CASE("memory of others is locked while the handle lives, and not after a refusal") {
  const auto pinner = std::make_shared<CountingPinner>();
  pinner->limit = 10'000;
  std::vector<std::byte> others(8192);
  std::shared_ptr<void> handle;
  {
    HostMemory memory(pinner);
    handle = memory.pin(others);
    CHECK(handle != nullptr);
    CHECK(memory.pinned_bytes() == 8192);
    CHECK(memory.bytes() == 0);
    CHECK(memory.pin(others) == nullptr);
    CHECK(memory.notes().size() == 1);
  }
  CHECK(pinner->locked == 8192);
  handle.reset();
  CHECK(pinner->locked == 0);
  CHECK(HostMemory().pin(others) == nullptr);
}

TEST_CASE("without a pinner nothing is locked and there is nothing to tell") {
  HostMemory memory;
  const torch::Tensor values = memory.zeros(10, torch::kFloat);
  CHECK(memory.pinned_bytes() == 0);
  CHECK(memory.notes().empty());
}

TEST_CASE("memory that the system does not have is an error with the bytes") {
  HostMemory memory;
  CHECK_THROWS_WITH_AS(memory.zeros(int64_t{1} << 60, torch::kByte),
                       doctest::Contains("1152921504606846976 bytes of host memory"), Error);
}

TEST_CASE("on the CPU the host's side is plain memory, and copies end at once") {
  for (const bool pin : {true, false}) {
    const auto link = make_host_link(torch::kCPU, pin);
    const torch::Tensor values = link->memory.zeros(100, torch::kFloat);
    CHECK(link->memory.pinned_bytes() == 0);
    CHECK(link->memory.notes().empty());
    CHECK(link->copies->is_complete(link->copies->copy(values, torch::ones({100}), {})));
    CHECK(at::equal(values, torch::ones({100})));
  }
}

}  // namespace zeroth::device::host_link_test
