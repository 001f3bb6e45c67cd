#include "trainer/report/run_record.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/json/json.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::run_record_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What transformers' Trainer wrote: 12 steps of 4 rows of 32 positions
// (tools/make_results_fixtures.py).
Json trainers(const std::string& name) {
  return Json::parse(
      std::ifstream(fs::path(ZEROTH_SOURCE_DIR) / "tests/trainer/fixtures/results" / name));
}

RunPlan plan_of(const Workbench& bench, const std::string& more) {
  fs::resize_file(bench / "train.bin", (24 * 26 + 1) * sizeof(uint16_t));  // 24 whole windows
  return make_plan(
      parse_line(fmt::format(
          "--model_name_or_path {}/tests/model/fixtures/llama --train_file {} --validation_file {} "
          "--output_dir {} --seq-len 26 --per_device_train_batch_size 4 --max_eval_samples 10 "
          "--per_device_eval_batch_size 4 {}",
          ZEROTH_SOURCE_DIR, (bench / "train.bin").string(), (bench / "train.bin").string(),
          (bench / "out").string(), more)),
      1);
}

constexpr const char* kTrain =
    "--num_train_epochs 2 --logging_steps 3 --eval_strategy steps --eval_steps 5 --save_steps 5 "
    "--load_best_model_at_end True";

// The run that Trainer made, told to `record` as a run of our own.
void retell(RunRecord& record, BestModel& best) {
  std::map<int64_t, Json> logged, evaluated;
  const Json state = trainers("trainer_state.json");
  for (const Json& row : state["log_history"]) {
    if (row.contains("loss")) logged[row["step"]] = row;
    if (row.contains("eval_loss")) evaluated[row["step"]] = row;
  }
  for (int64_t step = 1; step <= 12; ++step) {
    const Json& row = logged.lower_bound(step)->second;  // as if all steps had the mean's loss
    StepRow reported;
    reported.stats.step = step;
    reported.stats.loss = row["loss"];
    reported.stats.grad_norm = row["grad_norm"];
    reported.stats.lr = row["learning_rate"];
    reported.stats.tokens = 4 * 32;
    reported.step_s = 0.5;
    reported.since_start_s = 10 + 0.5 * static_cast<double>(step);
    record.step(reported);
    if (!evaluated.contains(step)) continue;
    const double loss = evaluated[step]["eval_loss"];
    record.add_evaluation({.step = step, .eval_loss = loss, .eval_s = 0.25});
    best.observe_evaluation(step, loss);
  }
}

// Values of the clock differ; all others have to be the same.
void check_same(const Json& ours, const Json& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (const auto& [key, value] : theirs.items()) {
    CAPTURE(key);
    REQUIRE(ours.contains(key));
    CHECK(ours[key].type() == value.type());
    const bool timed = has(key, "_runtime") || has(key, "_per_second");
    if (value.is_number() && !timed) {
      CHECK(ours[key].get<double>() == doctest::Approx(value.get<double>()).epsilon(1e-12));
    } else if (!value.is_structured() && !timed) {
      CHECK(ours[key] == value);
    }
  }
}

}  // namespace

TEST_CASE("the files beside a model have the keys, types and values that Trainer's have") {
  const Workbench bench;
  const RunPlan plan = plan_of(bench, kTrain);
  REQUIRE(plan.samples.total_steps == 12);
  RunRecord record(plan);
  BestModel best(plan.flags.intervals);
  retell(record, best);
  record.write(best, 12);
  for (const char* name : {"all_results.json", "train_results.json", "eval_results.json"}) {
    CAPTURE(name);
    const Json ours = Json::parse(bench.read(fmt::format("out/{}", name)));
    if (std::string_view(name) == "train_results.json") {
      CHECK(ours["train_runtime"] == 6.0);
      CHECK(ours["train_samples_per_second"] == 8.0);
      CHECK(ours["train_steps_per_second"] == 2.0);
    } else {
      CHECK(ours["eval_samples_per_second"] == 40.0);
      CHECK(ours["eval_steps_per_second"] == 12.0);
    }
    check_same(ours, trainers(name));
  }
  Json ours = Json::parse(bench.read("out/trainer_state.json"));
  Json theirs = trainers("trainer_state.json");
  CHECK(ours["best_model_checkpoint"] ==
        plan.flags.output);  // there out/checkpoint-12, the same model
  ours["best_model_checkpoint"] = theirs["best_model_checkpoint"];
  check_same(ours, theirs);
  CHECK(ours["stateful_callbacks"] == theirs["stateful_callbacks"]);
  REQUIRE(ours["log_history"].size() == theirs["log_history"].size());
  for (size_t i = 0; i < ours["log_history"].size(); ++i) {
    check_same(ours["log_history"][i], theirs["log_history"][i]);
  }
}

TEST_CASE("what is recorded of an evaluation is that of the model in the output") {
  const Workbench bench;
  const RunPlan plan = plan_of(bench, kTrain);
  RunRecord record(plan);
  BestModel best(plan.flags.intervals);
  retell(record, best);
  record.write(best, 10);
  const Json ours = Json::parse(bench.read("out/eval_results.json"));
  CHECK(ours["eval_loss"] == 4.395123481750488);
  CHECK(ours["epoch"].get<double>() == doctest::Approx(10.0 / 6));
}

TEST_CASE("an evaluation alone adds to what is recorded, a training begins anew") {
  const Workbench bench;
  fs::create_directory(bench / "out");
  bench.write("out/all_results.json", R"({"train_loss": 2.5, "eval_loss": 9.0})");
  const RunPlan plan = plan_of(bench, "--do_train False --do_eval");
  RunRecord record(plan);
  record.add_evaluation({.step = 0, .eval_loss = 2.0, .eval_s = 0.5});
  record.write(BestModel(Intervals{}), 0);
  const Json all = Json::parse(bench.read("out/all_results.json"));
  CHECK(all["train_loss"] == 2.5);
  CHECK(all["eval_loss"] == 2.0);
  CHECK(all["perplexity"].get<double>() == doctest::Approx(7.389056));
  CHECK_FALSE(fs::exists(bench / "out/trainer_state.json"));
}

TEST_CASE("a folder that cannot be made is named") {
  const Workbench bench;
  const RunPlan plan = plan_of(bench, "--do_train False");
  bench.write("out", "a file");
  RunRecord record(plan);
  CHECK_THROWS_WITH_AS(record.write(BestModel(Intervals{}), 0), doctest::Contains("out"), Error);
}

TEST_CASE("a record that goes on is that of a run that was never interrupted") {
  const Workbench bench;
  const RunPlan plan = plan_of(bench, kTrain);
  const auto reported = [&](RunRecord& record, int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; ++step) {
      StepRow row;
      row.stats.step = step;
      row.stats.loss = 1.0 / 3 + 1 / static_cast<double>(step);
      row.stats.grad_norm = step == 3 ? INFINITY : 0.1;
      row.stats.tokens = 128;
      row.step_s = 0.5;
      row.since_start_s = 10 + 0.5 * static_cast<double>(step);
      record.step(row);
      if (step % 5 == 0) record.add_evaluation({.step = step, .eval_loss = 0.7, .eval_s = 0.25});
    }
  };
  for (const int64_t until : {0, 1, 4, 5, 6, 11}) {
    CAPTURE(until);
    RunRecord whole(plan), before(plan), after(plan);
    reported(whole, 1, 12);
    reported(before, 1, until);
    const Json history = parse_json(before.history(10 + 0.5 * until).dump(), {.name = "history"});
    after.resume_from(JsonView(history));
    CHECK(after.history(0) == history);
    reported(after, until + 1, 12);
    CHECK(after.history(16).dump() == whole.history(16).dump());
    const auto written = [&](RunRecord& record) {
      record.write(BestModel(plan.flags.intervals), 12);
      return bench.read("out/trainer_state.json") + bench.read("out/all_results.json");
    };
    const std::string expected = written(whole);
    CHECK(has(expected, "\"train_runtime\": 6.0"));
    CHECK(written(after) == expected);
  }
}

TEST_CASE("a record that nobody made is refused by what is wrong, and nothing of it is taken") {
  const Workbench bench;
  const RunPlan plan = plan_of(bench, kTrain);
  RunRecord record(plan);
  const Json good = record.history(0);
  const auto refused = [&](const char* key, const Json& value) {
    Json history = good;
    history[key] = value;
    return message_of<Error>([&] { record.resume_from(JsonView(history, "record")); });
  };
  CHECK(refused("log_history", {{{"loss", "<script>"}}}) ==
        "record.log_history[0].loss is \"<script>\", expected a number or null");
  CHECK(refused("log_history", Json::object()) == "record.log_history is {}, expected a list");
  CHECK(refused("evaluations", {3}) == "record.evaluations[0] is 3, expected a list");
  CHECK(refused("steps", -1).starts_with("record.steps is -1, expected an integer in 0.."));
  CHECK(refused("loss_sum", nullptr) == "record.loss_sum is null, expected a number, inf or nan");
  CHECK(record.history(0) == good);
}

}  // namespace zeroth::trainer::run_record_test
