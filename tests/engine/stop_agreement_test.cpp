#include "engine/verify/stop_agreement.h"

#include <doctest/doctest.h>

#include <array>
#include <thread>

#include "base/machine/timer.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::stop_agreement_test {
namespace {

constexpr int kRanks = 3;

void pause(std::chrono::microseconds time) {
  std::this_thread::sleep_for(time);
}

}  // namespace

TEST_CASE("what one rank wishes ends all of them at the same place, soon") {
  for (const int wishing : {0, 2}) {
    std::array<int, kRanks> places{};
    testing::run_ranks(kRanks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      int& place = places[static_cast<size_t>(mesh->rank())];
      StopAgreement end(*mesh, [&] { return mesh->rank() == wishing && place >= 5; });
      for (; place < 1000 && !end.stop_agreed(); ++place) {
        pause(std::chrono::milliseconds(mesh->rank() == 1 ? 30 : 5));
      }
      CHECK(end.stop_agreed());
    });
    CHECK(places[0] >= 5);
    CHECK(places[0] < 20);  // after a tenth of a second of the slowest
    CHECK(places[1] == places[0]);
    CHECK(places[2] == places[0]);
  }
}

TEST_CASE("where places follow quickly ranks ask each other at few of them") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    StopAgreement end(*mesh, [] { return false; });
    const int64_t before = mesh->cpu_group().times().collectives;
    const Timer watch;
    for (int place = 0; place < 2000; ++place) {
      CHECK_FALSE(end.stop_agreed());
      pause(std::chrono::microseconds(50));
    }
    const int64_t asked = mesh->cpu_group().times().collectives - before;
    CHECK(asked >= 3);
    // Some while the stride grows, then ten in a second, or twice as many where places hurry up.
    CHECK(static_cast<double>(asked) < 20 + 20 * watch.seconds());
  });
}

TEST_CASE("a rank by itself is asked at each place") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    int asked = 0;
    StopAgreement end(*mesh, [&] { return ++asked == 3; });
    CHECK_FALSE(end.stop_agreed());
    CHECK_FALSE(end.stop_agreed());
    CHECK(end.stop_agreed());
    CHECK(end.stop_agreed());
    CHECK(asked == 3);
  });
}

}  // namespace zeroth::engine::stop_agreement_test
