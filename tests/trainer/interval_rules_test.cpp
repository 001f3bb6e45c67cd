#include "trainer/flags/flag_rules.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::interval_rules_test {
namespace {

using Mode = Interval::Mode;

constexpr const char* kOurs = "--model m --data d.bin --eval-data e.bin --output o ";
constexpr const char* kTrainers =
    "--model_name_or_path m --train_file d.bin --validation_file e.bin --output_dir o ";

Intervals ours(const std::string& line) {
  return parse_line(kOurs + line).intervals;
}

Intervals trainers(const std::string& line) {
  return parse_line(kTrainers + line).intervals;
}

std::string refused(const std::string& line) {
  return usage_error_line(kTrainers + line);
}

}  // namespace

TEST_CASE("our own line evaluates and saves at the end, and every so many steps where asked") {
  CHECK_FALSE(ours("").evaluate.is_on());
  CHECK_FALSE(ours("").save.is_on());
  CHECK(ours("").save_total_limit == 2);
  CHECK(ours("--eval-every 10").evaluate == Interval{Mode::kSteps, 10});
  CHECK(ours("--save-every 0.25").save == Interval{Mode::kSteps, 0.25});
}

TEST_CASE(
    "a line for Trainer has its defaults: saved every 500 steps, all of them, not evaluated") {
  CHECK_FALSE(trainers("").evaluate.is_on());
  CHECK(trainers("").save == Interval{Mode::kSteps, 500});
  CHECK_FALSE(trainers("").save_total_limit);
  CHECK(trainers("").log == Interval{Mode::kSteps, 500});
  CHECK_FALSE(parse_line("--model_name_or_path m --train_file d.bin").intervals.save.is_on());
}

TEST_CASE("strategies are no, steps and epoch, in the words of 4.x too, and best for saving") {
  CHECK(trainers("--eval_strategy epoch").evaluate.mode == Mode::kEpochs);
  CHECK(trainers("--evaluation_strategy steps --eval_steps 25").evaluate ==
        Interval{Mode::kSteps, 25});
  CHECK(trainers("--eval_strategy steps --logging_steps 7").evaluate.every == 7);
  CHECK(trainers("--eval_strategy steps --eval_steps 0").evaluate.every == 500);
  CHECK_FALSE(trainers("--save_strategy no --save_steps 5").save.is_on());
  CHECK(trainers("--save_strategy epoch").save.mode == Mode::kEpochs);
  CHECK(trainers("--save_strategy best --eval_strategy epoch").save.mode == Mode::kBest);
  CHECK(trainers("--save_strategy best --eval_strategy epoch").tracks_best);
  CHECK(trainers("--logging_strategy no").log.mode == Mode::kNever);
  CHECK(refused("--eval_strategy best") == "--eval_strategy best: must be one of no, steps, epoch");
  CHECK(refused("--save_strategy best") ==
        "--save_strategy best needs --eval_strategy steps or epoch");
}

TEST_CASE("--eval_steps alone asks Trainer for nothing, and that is noted") {
  const Flags flags = parse_line(std::string(kTrainers) + "--eval_steps 25");
  CHECK_FALSE(flags.intervals.evaluate.is_on());
  REQUIRE(flags.notes.size() == 1);
  CHECK(flags.notes[0].text ==
        "--eval_steps 25: no effect without --eval_strategy steps, as in Hugging Face's Trainer");
}

TEST_CASE("a number of steps is whole, or a part of all of them") {
  CHECK(refused("--save_steps 2.5") ==
        "--save_steps 2.5: must be a whole number of steps, or below 1 as a fraction of all steps");
  CHECK(refused("--logging_steps 0") == "--logging_steps 0: must be above 0");
  CHECK(refused("--save_steps -1") == "--save_steps -1: must be above 0");
  CHECK(has(refused("--save_steps 1e30"), "must be at most 1000000000000000"));
  CHECK(trainers("--save_steps 0.1 --logging_steps 1").save.every == 0.1);
}

TEST_CASE("so many folders stay as the limit says, all of them where it says 0") {
  CHECK(trainers("--save_total_limit 3").save_total_limit == 3);
  CHECK_FALSE(trainers("--save_total_limit 0").save_total_limit);
  CHECK_FALSE(ours("--save-every 5 --save_total_limit 0").save_total_limit);
  CHECK(ours("--save-every 5 --save_total_limit 1").save_total_limit == 1);
}

TEST_CASE("the best model is kept by the loss of evaluations that are saved, too") {
  const Intervals best = trainers(
      "--load_best_model_at_end True --eval_strategy steps --eval_steps 5 --save_steps 10");
  CHECK(best.ends_with_best);
  CHECK(best.tracks_best);
  CHECK_FALSE(best.greater_is_better);
  const std::string epochs =
      "--load_best_model_at_end --eval_strategy epoch --save_strategy epoch ";
  CHECK(trainers(epochs + "--metric_for_best_model eval_loss --greater_is_better True")
            .greater_is_better);
  CHECK_FALSE(trainers(epochs + "--greater_is_better False").greater_is_better);
  CHECK(trainers("--load_best_model_at_end --eval_strategy epoch --save_strategy best")
            .ends_with_best);
  CHECK_FALSE(trainers("--load_best_model_at_end False").ends_with_best);
  CHECK(has(refused("--load_best_model_at_end"),
            "needs --eval_strategy and --save_strategy to be the same"));
  CHECK(has(refused("--load_best_model_at_end --eval_strategy epoch"), "to be the same"));
  CHECK(refused("--load_best_model_at_end --eval_strategy steps --eval_steps 4 --save_steps 10") ==
        "--load_best_model_at_end needs --save_steps 10 to be a multiple of --eval_steps 4");
  CHECK(has(
      refused("--load_best_model_at_end --eval_strategy steps --eval_steps 0.1 --save_steps 10"),
      "to be a multiple of"));
  CHECK(trainers("--load_best_model_at_end --eval_strategy steps --eval_steps 0.1 --save_steps 0.3")
            .ends_with_best);
  CHECK(refused(epochs + "--metric_for_best_model accuracy") ==
        "--metric_for_best_model accuracy: must be loss or eval_loss, which an evaluation gives");
}

TEST_CASE("what is asked for on the way needs its data and its output") {
  CHECK(usage_error("--eval_strategy epoch") ==
        "--eval_strategy epoch needs --eval-data or --val-split");
  CHECK(usage_error("--eval-every 3") == "--eval-every needs --eval-data or --val-split");
  CHECK(usage_error("--eval_on_start") == "--eval_on_start needs --eval-data or --val-split");
  CHECK(usage_error("--save_strategy epoch") == "--save_strategy epoch needs --output");
  CHECK(usage_error("--save_steps 3") == "--save_steps needs --output");
}

TEST_CASE("--do_train False evaluates only, whatever else is asked for") {
  const Flags flags = parse_line(std::string(kTrainers) +
                                 "--do_train False --do_eval --num_train_epochs 3 --save_steps 5 "
                                 "--eval_strategy epoch --load_best_model_at_end");
  CHECK(flags.eval_only);
  CHECK_FALSE(flags.epochs);
  CHECK_FALSE(flags.intervals.save.is_on());
  CHECK_FALSE(flags.intervals.ends_with_best);
  CHECK(flags.eval_data == std::vector<std::string>{"e.bin"});
  CHECK(flags.output == "o");
  CHECK_FALSE(parse_line(std::string(kTrainers) + "--do_train").eval_only);
  CHECK(refused("--do_train False --do_eval False") ==
        "--do_train False and --do_eval False: nothing to do");
}

TEST_CASE("--do_eval False leaves the evaluation out, unless a strategy asks for it") {
  const Flags without = parse_line(std::string(kTrainers) + "--do_eval False");
  CHECK(without.eval_data.empty());
  REQUIRE(without.notes.size() == 1);
  CHECK(without.notes[0].text == "--validation_file is not read: --do_eval False");
  CHECK(parse_line(std::string(kTrainers) + "--do_eval False --eval_strategy epoch").eval_data ==
        std::vector<std::string>{"e.bin"});
  CHECK(has(usage_error("--do_eval"),
            "--do_eval needs --eval-data (--validation_file), or --val-split"));
}

}  // namespace zeroth::trainer::interval_rules_test
