#include "trainer/best_model.h"

#include <doctest/doctest.h>

#include <limits>

namespace zeroth::trainer {
namespace {

Cadences tracked(bool greater_is_better = false) {
  Cadences cadences;
  cadences.tracks_best = true;
  cadences.greater_is_better = greater_is_better;
  return cadences;
}

}  // namespace

TEST_CASE("the best model is the one with the lowest loss so far, or the greatest where asked") {
  BestModel lowest(tracked());
  CHECK(lowest.evaluated(5, 2.0));
  CHECK_FALSE(lowest.evaluated(10, 2.0));
  CHECK(lowest.evaluated(15, 1.5));
  CHECK(lowest.loss() == 1.5);
  CHECK(lowest.step() == 15);
  BestModel greatest(tracked(true));
  CHECK(greatest.evaluated(5, 2.0));
  CHECK(greatest.evaluated(10, 3.0));
  CHECK_FALSE(greatest.evaluated(15, 2.5));
}

TEST_CASE("a loss that is not a number is never the best, and nothing is where nobody asks") {
  BestModel best(tracked());
  CHECK_FALSE(best.evaluated(5, std::numeric_limits<double>::quiet_NaN()));
  CHECK_FALSE(best.loss());
  CHECK(best.evaluated(10, 9.0));
  BestModel untracked{Cadences{}};
  CHECK_FALSE(untracked.evaluated(5, 1.0));
  CHECK_FALSE(untracked.step());
}

TEST_CASE("the best model that is on the disk is the best at the time of a save") {
  BestModel best(tracked());
  best.evaluated(5, 2.0);
  best.saved(5, "out/checkpoint-5");
  best.evaluated(10, 3.0);
  best.saved(10, "out/checkpoint-10");
  CHECK(best.folder() == "out/checkpoint-5");
  best.evaluated(12, 1.0);  // is not saved
  CHECK(best.folder() == "out/checkpoint-5");
  CHECK(best.saved_step() == 5);
  CHECK(best.step() == 12);
}

TEST_CASE("a run that goes on compares with the best of before") {
  BestModel before(tracked());
  before.evaluated(5, 2.0);
  before.saved(5, "out/step-5");
  BestModel best(tracked());
  best.restore(before.state());
  CHECK_FALSE(best.evaluated(10, 2.5));
  CHECK(best.folder() == "out/step-5");
  CHECK(best.saved_step() == 5);
  CHECK(best.evaluated(15, 1.0));
}

}  // namespace zeroth::trainer
