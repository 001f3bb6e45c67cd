#include "trainer/attempt_log.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tests/trainer/counting_dataset.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::attempt_log_test {
namespace {

RunPlan plan_of(const TempFolder& directory, int64_t number) {
  RunPlan plan;
  plan.flags.output = (directory / "out").string();
  plan.samples.train = std::make_unique<CountingDataset>(10, 4);
  plan.attempt = {.run = "0123456789abcdef",
                  .index = number,
                  .cause = number > 0 ? "rank 1 was killed by SIGKILL" : "",
                  .is_tracked = true,
                  .is_global = true,
                  .resumes = number > 0};
  plan.config.batch = {.train_batch_size = 12, .micro_batch_size = 6, .accumulation_steps = 1};
  return plan;
}

}  // namespace

TEST_CASE("each round tells where it goes on and what was lost, and metrics get what was cut") {
  const TempFolder directory;
  {
    RunPlan plan = plan_of(directory, 0);
    AttemptLog rounds(plan, true, "");
    rounds.begin(0, 2);
    CHECK(rounds.line() == "0 after step 0 on 1 host, 2 ranks");
    rounds.resume_from(0);
    CHECK(rounds.lines() ==
          std::vector<std::string>{
              R"({"step":0,"round":0,"hosts":1,"ranks":2,"cause":null,"steps_lost":0})"});
    rounds.step(11);
  }
  {
    RunPlan plan = plan_of(directory, 1);
    plan.previous_attempts = read_attempts(directory / "out");
    plan.resume_plan.emplace().step = 8;
    AttemptLog rounds(plan, true, "");
    rounds.begin(2, 4);
    CHECK(rounds.line() ==
          "1 after step 8 on 2 hosts, 4 ranks, 3 steps lost: rank 1 was killed by SIGKILL");
    CHECK(rounds.lines().size() == 1);
    CHECK(rounds.rows().size() == 2);
    rounds.step(9);
  }
  RunPlan plan = plan_of(directory, 2);
  plan.previous_attempts = read_attempts(directory / "out");
  plan.resume_plan.emplace().step = 8;
  AttemptLog rounds(plan, true, "");
  rounds.begin(1, 1);
  rounds.resume_from(4);  // the newest one was damaged
  CHECK(rounds.lines().size() == 2);
  CHECK(rounds.lines().front().starts_with(R"({"step":8,"round":1,)"));
  CHECK(rounds.lines().back().ends_with(R"("steps_lost":5})"));
}

TEST_CASE("where nobody counts rounds, and on other ranks, nothing is told and no file is made") {
  const TempFolder directory;
  RunPlan plan = plan_of(directory, 0);
  AttemptLog other(plan, false, "");
  other.begin(1, 2);
  CHECK_FALSE(other.any());
  plan.attempt = {};
  AttemptLog plain(plan, true, "");
  plain.begin(1, 2);
  plain.resume_from(0);
  plain.step(1);
  CHECK_FALSE(plain.any());
  CHECK(plain.lines().empty());
  CHECK(std::filesystem::is_empty(directory.path()));
}

}  // namespace zeroth::trainer::attempt_log_test
