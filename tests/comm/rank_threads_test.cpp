#include "comm/rank_threads.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <array>

#include "base/machine/cpu.h"
#include "tests/support/ranks.h"

namespace zeroth::comm::rank_threads_test {

TEST_CASE("ranks that may run on the same cores share them") {
  constexpr std::array<int64_t, 8> kOneHost = {7, 7, 7, 7, 7, 7, 7, 7};
  CHECK(fair_threads(kOneHost, 0, 128, 128) == 16);
  CHECK(fair_threads(kOneHost, 5, 100, 128) == 12);
  CHECK(fair_threads(kOneHost, 5, 4, 4) == 1);
  CHECK(fair_threads(kOneHost, 5, 128, 10) == 10);  // LibTorch alone would not take more
}

TEST_CASE("ranks that were bound take their own cores, those bound to a node its part") {
  constexpr std::array<int64_t, 4> kOwn = {1, 2, 3, 4};
  CHECK(fair_threads(kOwn, 2, 4, 4) == 4);
  constexpr std::array<int64_t, 4> kNodes = {1, 1, 2, 2};
  CHECK(fair_threads(kNodes, 3, 64, 64) == 32);
}

TEST_CASE("the number of threads is the user's, else a part of the rank's cores") {
  const int cores = static_cast<int>(allowed_cores().size());
  testing::run_ranks(2, [&](std::shared_ptr<DeviceMesh> mesh) {
    RankEnv env;
    at::set_num_threads(cores);
    set_num_threads(env, *mesh);
    CHECK(at::get_num_threads() == std::max(1, cores / 2));
    // On a core of its own, as under a launcher that binds.
    REQUIRE(set_affinity({allowed_cores()[static_cast<size_t>(mesh->rank() % cores)]}) == 0);
    at::set_num_threads(cores);
    set_num_threads(env, *mesh);
    CHECK(at::get_num_threads() == 1);
    env.num_threads = 3;
    set_num_threads(env, *mesh);
    CHECK(at::get_num_threads() == 3);
  });
  testing::run_ranks(1, [&](std::shared_ptr<DeviceMesh> mesh) {
    at::set_num_threads(cores);
    set_num_threads({}, *mesh);
    CHECK(at::get_num_threads() == cores);
  });
}

}  // namespace zeroth::comm::rank_threads_test
