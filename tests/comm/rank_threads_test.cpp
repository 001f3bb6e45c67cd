#include "comm/rank_threads.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include "base/affinity.h"

namespace zeroth::comm {

TEST_CASE("ranks of a host share its cores") {
  CHECK(fair_threads(128, 128, 8) == 16);
  CHECK(fair_threads(128, 128, 3) == 42);
  CHECK(fair_threads(4, 4, 8) == 1);
}

TEST_CASE("a rank that was bound takes its own cores, but no more than its part") {
  CHECK(fair_threads(4, 16, 4) == 4);     // to its part
  CHECK(fair_threads(64, 128, 8) == 16);  // to a node, with others
  CHECK(fair_threads(1, 128, 8) == 1);
}

TEST_CASE("the number of threads is the user's, else a part of the launcher's cores") {
  const int before = at::get_num_threads();
  RankEnv env;
  set_num_threads(env);
  CHECK(at::get_num_threads() == before);
  env.local_size = 2;
  set_num_threads(env);
  const auto cores = cores_of(::getppid());
  REQUIRE(cores);
  CHECK(at::get_num_threads() == fair_threads(before, static_cast<int>(cores->size()), 2));
  env.num_threads = 3;
  set_num_threads(env);
  CHECK(at::get_num_threads() == 3);
  at::set_num_threads(before);
}

}  // namespace zeroth::comm
