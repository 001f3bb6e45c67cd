#include "device/host_memory.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"

namespace zeroth::device {
namespace {

struct CountingLocker final : PageLocker {
  std::string lock(std::span<std::byte> memory) override {
    ++asked;
    if (locked + memory.size() > limit) return "no more than the limit";
    locked += memory.size();
    return "";
  }
  void unlock(std::span<std::byte> memory) noexcept override { locked -= memory.size(); }

  size_t limit = std::numeric_limits<size_t>::max();
  size_t locked = 0;
  int asked = 0;
};

}  // namespace

TEST_CASE("host memory is zero and takes its bytes rounded up to a page, not to a power of two") {
  const auto locker = std::make_shared<CountingLocker>();
  HostMemory memory(locker);
  const torch::Tensor values = memory.zeros(1'500'000, torch::kFloat);
  CHECK(at::equal(values, torch::zeros({1'500'000})));
  CHECK(memory.bytes() == 6'000'640);
  CHECK(memory.locked_bytes() == memory.bytes());
  CHECK(locker->locked == 6'000'640);
  CHECK((memory.zeros(3, torch::kBFloat16).scalar_type() == torch::kBFloat16));
  CHECK(memory.notes().empty());
}

TEST_CASE("all pages of host memory are there before they are locked: all threads made them") {
  struct Looks final : PageLocker {
    std::string lock(std::span<std::byte> memory) override {
      std::vector<unsigned char> there(memory.size() / sysconf(_SC_PAGESIZE));
      REQUIRE(mincore(memory.data(), memory.size(), there.data()) == 0);
      missing =
          std::count_if(there.begin(), there.end(), [](auto page) { return (page & 1) == 0; });
      return "";
    }
    void unlock(std::span<std::byte>) noexcept override {}
    int64_t missing = -1;
  };
  const auto locker = std::make_shared<Looks>();
  HostMemory(locker).zeros((int64_t{130} << 20) + 5, torch::kByte);
  CHECK(locker->missing == 0);
}

TEST_CASE("host memory is unlocked and given back with the last tensor on it") {
  const auto locker = std::make_shared<CountingLocker>();
  torch::Tensor part;
  {
    HostMemory memory(locker);
    part = memory.zeros(4096, torch::kFloat).narrow(0, 1000, 10);
    part.fill_(3);
  }
  CHECK(locker->locked == 4096 * 4);
  CHECK(part.sum().item<float>() == 30);
  part = torch::Tensor();
  CHECK(locker->locked == 0);
}

TEST_CASE("after a refusal all memory stays pageable, which is told once") {
  const auto locker = std::make_shared<CountingLocker>();
  locker->limit = 8192;
  HostMemory memory(locker);
  const torch::Tensor first = memory.zeros(4096, torch::kByte);
  const torch::Tensor second = memory.zeros(100'000, torch::kByte);
  const torch::Tensor third = memory.zeros(4096, torch::kByte);
  CHECK(locker->asked == 2);
  CHECK(memory.locked_bytes() == 4096);
  CHECK(at::equal(second, torch::zeros({100'000}, torch::kByte)));
  REQUIRE(memory.notes().size() == 1);
  CHECK(memory.notes()[0].find("no more than the limit") != std::string::npos);
}

TEST_CASE("memory of others is locked while the handle lives, and not after a refusal") {
  const auto locker = std::make_shared<CountingLocker>();
  locker->limit = 10'000;
  std::vector<std::byte> others(8192);
  std::shared_ptr<void> handle;
  {
    HostMemory memory(locker);
    handle = memory.lock(others);
    CHECK(handle != nullptr);
    CHECK(memory.locked_bytes() == 8192);
    CHECK(memory.bytes() == 0);
    CHECK(memory.lock(others) == nullptr);
    CHECK(memory.notes().size() == 1);
  }
  CHECK(locker->locked == 8192);
  handle.reset();
  CHECK(locker->locked == 0);
  CHECK(HostMemory().lock(others) == nullptr);
}

TEST_CASE("without a locker nothing is locked and there is nothing to tell") {
  HostMemory memory;
  const torch::Tensor values = memory.zeros(10, torch::kFloat);
  CHECK(memory.locked_bytes() == 0);
  CHECK(memory.notes().empty());
}

TEST_CASE("memory that the system does not have is an error with the bytes") {
  HostMemory memory;
  CHECK_THROWS_WITH_AS(memory.zeros(int64_t{1} << 60, torch::kByte),
                       doctest::Contains("1152921504606846976 bytes of host memory"), Error);
}

}  // namespace zeroth::device
