// What a run tells when it goes on from a checkpoint: reporters that are told the same steps.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "engine/memory/memory_check.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/fuzz/mutant.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/report/history.h"
#include "trainer/report/reporter.h"

namespace zeroth::trainer::reporter_history_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kSteps = 40, kSaved = 17;

// A plan and an engine, for reporters that are told of steps which nobody has made.
struct Stage {
  Workbench bench;
  RunPlan plan;
  engine::RunMemory memory;
  std::unique_ptr<engine::Engine> engine;

  Stage() {
    bench.write("ds.json", fmt::format(R"({{"log_level": "error",
      "csv_monitor": {{"enabled": true, "output_path": "{}", "job_name": "csv"}}}})",
                                       (bench / ".").string()));
    plan = make_plan(
        parse_line(fmt::format(
            "--model {0}/model --data {0}/train.bin --eval-data {0}/train.bin --seq-len 16 "
            "--global-batch 8 --micro-batch 2 --steps {1} --deepspeed {0}/ds.json --output {0}/out "
            "--metrics {0}/m.jsonl",
            (bench / ".").string(), kSteps)),
        1);
    engine =
        engine::initialize(model::build_blocks(plan.spec), plan.config,
                           std::make_shared<comm::DeviceMesh>(torch::kCPU, comm::make_solo_group()),
                           {.weights = model::open_weights(plan.flags.model, plan.spec, 1)});
  }

  std::unique_ptr<Reporter> reporter() const {
    return std::make_unique<Reporter>(plan, memory, env, clock);
  }

  // Steps from `from` to `to`; `wrong`: with losses of a try that is lost.
  void report(Reporter& reporter, int64_t from, int64_t to, double wrong = 0) const {
    for (int64_t step = from; step <= to; ++step) {
      engine::StepStats stats;
      stats.step = step;
      stats.loss = wrong + 2.5 + std::sin(static_cast<double>(step)) / 3;
      stats.grad_norm = step == 5 ? INFINITY : 0.1;
      stats.lr = 1e-3 / static_cast<double>(step);
      stats.tokens = stats.num_label_tokens = 128;
      reporter.step(stats);
      if (step % 10 == 0)
        reporter.log_evaluation(step, {.loss = wrong + 0.3, .num_label_tokens = 7});
    }
  }

  void end(Reporter& reporter) const {
    reporter.write_records(BestModel(plan.flags.intervals), kSteps);
    reporter.finish();
  }

  std::string text(const std::string& name) const { return bench.read(name); }

  comm::RankEnv env;
  RunTimer clock{std::nullopt};
};

void erase_times(Json& json) {
  if (json.is_array()) {
    for (Json& item : json) erase_times(item);
  }
  if (!json.is_object()) return;
  for (const char* key :
       {"step_s", "since_start_s", "tokens_per_s", "peak_rss_mib", "peak_share", "train_runtime",
        "eval_runtime", "train_samples_per_second", "train_steps_per_second",
        "eval_samples_per_second", "eval_steps_per_second", "started", "written", "away", "resumed",
        "memory_mib", "summary", "monitors"}) {
    json.erase(key);
  }
  for (auto& [key, value] : json.items()) erase_times(value);
}

// What a run has left, without what differs from one run to the next.
Json left(const Stage& stage) {
  Json all;
  for (const Json& row : stage.bench.rows("m.jsonl", "step")) {
    if (!row.contains("resumed")) all["metrics"].push_back(row);
  }
  for (const char* name : {"train_loss", "lr", "grad_norm", "eval_loss"}) {
    all[name] = stage.text(fmt::format("csv/Train_Samples_{}.csv", name));
  }
  const std::string page = stage.text("out/train_log.html");
  const std::string start = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(start) + start.size();
  all["page"] = Json::parse(page.substr(from, page.find("</script>", from) - from));
  all["page"].erase("config");
  for (const char* name : {"trainer_state", "train_results", "eval_results", "all_results"}) {
    all[name] = Json::parse(stage.text(fmt::format("out/{}.json", name)));
  }
  erase_times(all);
  // The output is a folder of the test's own.
  const std::string state = all["trainer_state"].dump();
  CHECK(state.find((stage.bench / "out").string()) == state.npos);
  return all;
}

void append(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

// A run that has saved at kSaved and gone on for eight steps until it was killed.
std::string history_of_killed_run(const Stage& stage) {
  const auto reporter = stage.reporter();
  reporter->start(*stage.engine);
  stage.report(*reporter, 1, kSaved);
  const std::string history = reporter->history();
  stage.report(*reporter, kSaved + 1, kSaved + 8, 1.5);
  return history;
}

}  // namespace

TEST_CASE(
    "a run that goes on from a checkpoint leaves what one that was never interrupted leaves") {
  const Stage whole, stage;
  const auto reporter = whole.reporter();
  reporter->start(*whole.engine);
  whole.report(*reporter, 1, kSteps);
  whole.end(*reporter);

  const std::string history = history_of_killed_run(stage);
  append(stage.bench / "m.jsonl", R"({"step":26,"lo)");
  append(stage.bench / "csv/Train_Samples_lr.csv", "208,0.0");
  const auto again = stage.reporter();
  again->expect_resume();
  again->start(*stage.engine);
  again->resume_from(history, kSaved);
  CHECK(Json::parse(again->history())["record"]["loss_sum"] ==
        Json::parse(history)["record"]["loss_sum"]);
  stage.report(*again, kSaved + 1, kSteps);
  stage.end(*again);
  CHECK(left(stage) == left(whole));
  const auto resumed = stage.bench.rows("m.jsonl", "resumed");
  REQUIRE(resumed.size() == 1);
  CHECK(resumed[0]["step"] == kSaved);
  double last = 0;
  for (const Json& row : stage.bench.rows("m.jsonl", "step")) {
    CHECK(row["since_start_s"].get<double>() >= last);
    last = row["since_start_s"];
  }
  CHECK(stage.bench.steps("m.jsonl")[kSaved]["peak_share"].is_null());  // as in a first step
}

TEST_CASE("a run goes on twice, the second time where the first one had gone on") {
  const Stage whole, stage;
  const auto reporter = whole.reporter();
  reporter->start(*whole.engine);
  whole.report(*reporter, 1, kSteps);
  whole.end(*reporter);
  std::string history = history_of_killed_run(stage);
  for (const bool last : {false, true}) {
    const auto again = stage.reporter();
    again->expect_resume();
    again->start(*stage.engine);
    again->resume_from(history, kSaved);
    history = again->history();
    stage.report(*again, kSaved + 1, last ? kSteps : kSaved + 3, last ? 0 : 0.5);
    if (last) stage.end(*again);
  }
  CHECK(left(stage) == left(whole));
  CHECK(stage.bench.rows("m.jsonl", "resumed").size() == 2);
}

TEST_CASE("what a run that is to go on finds stays as it is until it does") {
  const Stage stage;
  const std::string history = history_of_killed_run(stage);
  const std::string metrics = stage.text("m.jsonl"), page = stage.text("out/train_log.html"),
                    rates = stage.text("csv/Train_Samples_lr.csv");
  const auto untouched = [&] {
    CHECK(stage.text("m.jsonl") == metrics);
    CHECK(stage.text("out/train_log.html") == page);
    CHECK(stage.text("csv/Train_Samples_lr.csv") == rates);
  };
  {
    const auto reporter = stage.reporter();
    reporter->expect_resume();
    reporter->log_interruption({.signal = "SIGTERM"}, "nothing is saved");
  }
  untouched();
  for (const std::string& wrong : {std::string("{"), history.substr(0, history.size() / 2)}) {
    const auto reporter = stage.reporter();
    reporter->expect_resume();
    reporter->start(*stage.engine);
    CHECK(message_of<Error>([&] {
            reporter->resume_from(wrong, kSaved);
          }).starts_with("zeroth/history.json:1:"));
  }
  untouched();
  const auto reporter = stage.reporter();
  reporter->expect_resume();
  reporter->start(*stage.engine);
  CHECK(message_of<Error>([&] { reporter->resume_from(history, kSaved + 1); }) ==
        "zeroth/history.json is for step 17, the checkpoint for step 18");
  untouched();
}

TEST_CASE("without a history the files go on, and what was told before is not known") {
  const Stage stage;
  (void)history_of_killed_run(stage);
  const auto again = stage.reporter();
  again->expect_resume();
  again->start(*stage.engine);
  again->resume_from("", kSaved);
  stage.report(*again, kSaved + 1, kSteps);
  stage.end(*again);
  const auto rows = stage.bench.steps("m.jsonl");
  REQUIRE(rows.size() == kSteps);
  for (size_t i = 0; i < rows.size(); ++i) CHECK(rows[i]["step"] == i + 1);
  const double mean = Json::parse(stage.text("out/train_results.json"))["train_loss"];
  CHECK(mean > 2.2);
  CHECK(mean < 2.8);
}

TEST_CASE("a folder that --report_to names by time is that of the first try") {
  Stage stage;
  const auto runs = [&](const std::string& name) { return stage.bench / ("out/runs/" + name); };
  const auto go = [&](const std::string& name, const std::string& history) {
    stage.plan.monitors = {
        .tensorboard = {.directory = runs(name), .origin = "--report_to tensorboard"},
        .run_name = name};
    const auto reporter = stage.reporter();
    reporter->expect_resume();
    reporter->start(*stage.engine);
    CHECK(fs::exists(runs(name)));
    reporter->resume_from(history, history.empty() ? 0 : kSaved);
    if (history.empty()) stage.report(*reporter, 1, kSaved);
    return reporter->history();
  };
  std::string history = go("Nov23_10-00-00_node7", "");
  history = go("Nov23_11-00-00_node7", history);
  history = go("Nov23_12-00-00_node7", history);
  CHECK(fs::exists(runs("Nov23_10-00-00_node7")));
  CHECK_FALSE(fs::exists(runs("Nov23_11-00-00_node7")));
  CHECK_FALSE(fs::exists(runs("Nov23_12-00-00_node7")));
  CHECK(Json::parse(history)["run_name"] == "Nov23_10-00-00_node7");
  fs::remove_all(runs("Nov23_10-00-00_node7"));
  history = go("Nov23_13-00-00_node7", history);
  CHECK(Json::parse(history)["run_name"] == "Nov23_13-00-00_node7");
}

TEST_CASE("mutants of a history are taken or refused by the file's name") {
  const Stage stage;
  const std::string good = history_of_killed_run(stage);
  int taken = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::string text = fuzz::mutant({good}, seed);
    const auto reporter = stage.reporter();
    reporter->expect_resume();
    reporter->start(*stage.engine);
    try {
      reporter->resume_from(text, kSaved);
      CHECK_FALSE(reporter->history().empty());
      ++taken;
    } catch (const Error& error) {
      CHECK_MESSAGE(std::string(error.what()).starts_with("zeroth/history.json"), error.what());
    }
  }
  CHECK(taken < 400);
}

}  // namespace zeroth::trainer::reporter_history_test
