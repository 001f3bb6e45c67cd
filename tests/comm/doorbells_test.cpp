#include "comm/groups/doorbells.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

namespace zeroth::comm::doorbells_test {
namespace {

using std::chrono::milliseconds;

}  // namespace

TEST_CASE("who sleeps is woken by his bell and sees what was stored before") {
  const auto segment = SharedSegment::create(Doorbells::bytes(2));
  Doorbells sleeper(segment, 0, 0, 2), ringer(segment, 0, 1, 2);
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> stored = false;
    std::jthread other([&] {
      if (round % 2 == 0) std::this_thread::sleep_for(milliseconds(1));  // it sleeps by then
      stored = true;
      ringer.notify(0);
    });
    REQUIRE(sleeper.wait([&] { return stored.load(); }, milliseconds(600'000)));
  }
  // One bell that is not heard would take ten minutes.
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(500'000));
}

TEST_CASE("a wait without a bell ends at its limit, and one that need not sleep at once") {
  const auto segment = SharedSegment::create(Doorbells::bytes(2));
  Doorbells doorbells(segment, 0, 0, 2);
  CHECK_FALSE(doorbells.wait([] { return false; }, milliseconds(20)));
  CHECK(doorbells.wait([] { return true; }, milliseconds(0)));
}

}  // namespace zeroth::comm::doorbells_test
