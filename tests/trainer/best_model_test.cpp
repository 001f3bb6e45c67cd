#include "trainer/best_model.h"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <limits>

#include "checkpoint/commit.h"
#include "checkpoint/posix_file_system.h"
#include "tests/support/temp_folder.h"
#include "trainer/report/history.h"

namespace zeroth::trainer::best_model_test {
namespace {

Intervals tracked(bool greater_is_better = false) {
  Intervals intervals;
  intervals.tracks_best = true;
  intervals.greater_is_better = greater_is_better;
  return intervals;
}

}  // namespace

TEST_CASE("the best model is the one with the lowest loss so far, or the greatest where asked") {
  BestModel lowest(tracked());
  CHECK(lowest.observe_evaluation(5, 2.0));
  CHECK_FALSE(lowest.observe_evaluation(10, 2.0));
  CHECK(lowest.observe_evaluation(15, 1.5));
  CHECK(lowest.loss() == 1.5);
  CHECK(lowest.step() == 15);
  BestModel greatest(tracked(true));
  CHECK(greatest.observe_evaluation(5, 2.0));
  CHECK(greatest.observe_evaluation(10, 3.0));
  CHECK_FALSE(greatest.observe_evaluation(15, 2.5));
}

TEST_CASE("a loss that is not a number is never the best, and nothing is where nobody asks") {
  BestModel best(tracked());
  CHECK_FALSE(best.observe_evaluation(5, std::numeric_limits<double>::quiet_NaN()));
  CHECK_FALSE(best.loss());
  CHECK(best.observe_evaluation(10, 9.0));
  BestModel untracked{Intervals{}};
  CHECK_FALSE(untracked.observe_evaluation(5, 1.0));
  CHECK_FALSE(untracked.step());
}

TEST_CASE("the best model that is on the disk is the best at the time of a save") {
  BestModel best(tracked());
  best.observe_evaluation(5, 2.0);
  best.observe_checkpoint(5, "out/checkpoint-5");
  best.observe_evaluation(10, 3.0);
  best.observe_checkpoint(10, "out/checkpoint-10");
  CHECK(best.directory() == "out/checkpoint-5");
  best.observe_evaluation(12, 1.0);  // is not saved
  CHECK(best.directory() == "out/checkpoint-5");
  CHECK(best.saved_step() == 5);
  CHECK(best.step() == 12);
}

TEST_CASE("a run that goes on compares with the best of before") {
  BestModel before(tracked());
  before.observe_evaluation(5, 2.0);
  before.observe_checkpoint(5, "out/step-5");
  BestModel best(tracked());
  best.restore(before.state());
  CHECK_FALSE(best.observe_evaluation(10, 2.5));
  CHECK(best.directory() == "out/step-5");
  CHECK(best.saved_step() == 5);
  CHECK(best.observe_evaluation(15, 1.0));
}

namespace {

void save(const std::filesystem::path& directory, const std::vector<int64_t>& steps) {
  checkpoint::SingleRankGroup one;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(directory), one,
                          {.run_id = "run", .keep = 0});
  for (const int64_t step : steps) saver.begin(step, 1000).commit({}, {});
}

std::string history(const nlohmann::json& evaluations) {
  return to_text({.step = 8, .record = {{"evaluations", evaluations}}});
}

nlohmann::json loss(double value) {
  return {{"eval_loss", value}};
}

}  // namespace

TEST_CASE("best_checkpoint_gone: of those that are there the best one is found by its evaluation") {
  const TempFolder directory;
  save(directory / "own", {4, 6, 8});
  save(directory / "source", {2, 10});
  std::vector<std::filesystem::path> directories = {directory / "own", directory / "source"};
  // The best model, and the warning about it.
  const auto located = [&](const std::string& text, bool greater_is_better = false) {
    BestModel best(tracked(greater_is_better));
    best.restore({.loss = 1.0, .step = 2, .saved_step = 2, .directory = "x"});
    std::string warning = best.locate(directories, 8, text);
    return std::pair(best, warning);
  };
  const std::string text = history({{2, loss(1)}, {4, loss(3)}, {6, loss(2)}, {8, loss(4)}});
  const auto [there, no_warning] = located(text);
  CHECK(no_warning.empty());
  CHECK(there.directory() == directory / "source/step-2");
  directories.pop_back();
  const auto [lowest, warning] = located(text);
  CHECK(lowest.saved_step() == 6);
  CHECK(lowest.loss() == 2);
  CHECK(lowest.directory() == directory / "own/step-6");
  CHECK(warning == fmt::format("{}/step-2 is missing, which had the best model so far; of the "
                               "remaining ones {}/step-6 is the best, with a loss of 2.0000",
                               (directory / "own").string(), (directory / "own").string()));
  CHECK(located(text, /*greater_is_better=*/true).first.saved_step() == 8);
  for (const std::string& none : {history({{2, loss(1)}}), to_text({.step = 8})}) {
    const auto [nothing, why] = located(none, /*greater_is_better=*/true);
    CHECK(!nothing.saved_step());
    CHECK(why.ends_with("the best of the later models is used, or else the last one"));
  }
}

}  // namespace zeroth::trainer::best_model_test
