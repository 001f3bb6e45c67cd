// What a run that is started again does not do or write twice: real processes.
#include "trainer/start_point.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::finished_run_test {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;

constexpr const char* kTrain =
    "--model model --seq-len 16 --global-batch 12 --data train.bin --deepspeed ds.json "
    "--metrics m.jsonl ";
constexpr const char* kEvaluates = "--eval-data train.bin --max-eval-samples 4 --eval-every 2 ";

// A bench whose runs write CSV files and for TensorBoard.
void write_config(const Workbench& bench) {
  bench.write("ds.json",
              R"({"csv_monitor": {"enabled": true, "output_path": "csv", "job_name": "j"},
                  "tensorboard": {"enabled": true, "output_path": "tb", "job_name": "j"}})");
}

Workbench::Result good(const Workbench& bench, int ranks, const std::string& arguments) {
  const bool names_output = arguments.find("--output") != std::string::npos;
  auto result = bench.zeroth(ranks, kTrain + arguments + (names_output ? "" : " --output out"));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  return result;
}

// The first numbers of the rows of a CSV file.
std::vector<std::string> samples_in(const Workbench& bench, const std::string& name) {
  std::istringstream in(bench.read("csv/j/Train_Samples_" + name + ".csv"));
  std::vector<std::string> samples;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) samples.push_back(line.substr(0, line.find(',')));
  return samples;
}

long event_files(const Workbench& bench) {
  return std::distance(fs::directory_iterator(bench / "tb/j"), fs::directory_iterator());
}

}  // namespace

TEST_CASE("evaluation_twice: a finished run that is started again says so, and writes nothing") {
  const Workbench bench;
  write_config(bench);
  const std::string way = fmt::format("--steps 4 --save-every 2 --resume auto {}", kEvaluates);
  good(bench, 2, way);
  std::vector<std::string> before;
  const std::vector<std::string> files = {"m.jsonl", "csv/j/Train_Samples_eval_loss.csv",
                                          "out/trainer_state.json", "out/train_log.html"};
  for (const std::string& file : files) before.push_back(bench.read(file));
  const long events = event_files(bench);
  CHECK(bench.evaluations("m.jsonl").size() == 2);
  for (int i = 0; i < 2; ++i) {
    const auto again = good(bench, 2, way);
    CHECK_MESSAGE(has(again.out,
                      "out has the model and the results of all 4 steps: nothing to "
                      "do. Increase"),
                  again.out);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    CHECK_MESSAGE((bench.read(files[i]) == before[i]), files[i]);
  }
  CHECK(event_files(bench) == events);
  // And goes on from there.
  good(bench, 2, fmt::format("--steps 6 --save-every 2 --resume auto {}", kEvaluates));
  CHECK(bench.steps("m.jsonl").size() == 6);
  CHECK(bench.evaluations("m.jsonl").size() == 3);
}

TEST_CASE("evaluation_twice: where something is missing that is made up for, and nothing else") {
  const Workbench bench;
  write_config(bench);
  const std::string way = "--steps 4 --save-every 2 --resume auto ";
  good(bench, 1, way);
  CHECK(has(good(bench, 1, way).out, "nothing to do. Increase"));
  const auto evaluated = good(bench, 1, way + kEvaluates);  // which the first one did not
  CHECK_FALSE(has(evaluated.out, "nothing to do. Increase"));
  CHECK(bench.evaluations("m.jsonl").size() == 1);
  fs::remove(bench / "out/model.safetensors");
  fs::remove(bench / "out/trainer_state.json");
  CHECK_FALSE(has(good(bench, 1, way).out, "nothing to do. Increase"));
  CHECK(fs::exists(bench / "out/model.safetensors"));
  CHECK(fs::exists(bench / "out/trainer_state.json"));
  CHECK(bench.steps("m.jsonl").size() == 4);
}

TEST_CASE("evaluation_twice: a step that the history has evaluated is not evaluated again") {
  const Workbench bench;
  write_config(bench);
  const std::string way = fmt::format("--steps 4 --save-every 2 --resume auto {}", kEvaluates);
  good(bench, 2, way);
  fs::remove(bench / "out/model.safetensors");
  good(bench, 2, way);
  CHECK(fs::exists(bench / "out/model.safetensors"));
  CHECK(bench.evaluations("m.jsonl").size() == 2);
  CHECK((samples_in(bench, "eval_loss") == Rows{"24", "48"}));
  const auto state = nlohmann::json::parse(bench.read("out/trainer_state.json"));
  CHECK(std::count_if(state["log_history"].begin(), state["log_history"].end(),
                      [](const auto& row) { return row.contains("eval_loss"); }) == 2);
}

TEST_CASE(
    "begins_anew_doubles: of a try that was killed before its first checkpoint nothing stays") {
  const Workbench bench;
  write_config(bench);
  const std::string first = fmt::format("--steps 3 --eval_on_start {}", kEvaluates);
  REQUIRE(good(bench, 1, first + "--output earlier --overwrite").code == 0);
  const std::string way =
      fmt::format("--steps 8 --save-every 100 --resume auto --eval_on_start {}", kEvaluates);
  const auto killed = bench.shell(
      fmt::format("{} '{}/zeroth' --num_gpus 1 finetune {} {} --output out",
                  signalled_behind(row_of_step(5), SIGKILL), ZEROTH_BIN_DIR, kTrain, way));
  REQUIRE(killed.code == 128 + SIGKILL);
  REQUIRE(samples_in(bench, "train_loss").size() >= 3 + 4);
  good(bench, 1, way);
  // Those of the earlier run, which came to its end, stay.
  CHECK((samples_in(bench, "train_loss") ==
         Rows{"12", "24", "36", "12", "24", "36", "48", "60", "72", "84", "96"}));
  CHECK((samples_in(bench, "eval_loss") == Rows{"0", "24", "36", "0", "24", "48", "72", "96"}));
  CHECK(bench.steps("m.jsonl").size() == 8);
  CHECK(bench.evaluations("m.jsonl").size() == 5);
}

TEST_CASE("begins_anew_doubles: a try that goes on after one without a checkpoint has its folder") {
  const Workbench bench;
  write_config(bench);
  const std::string way = "--steps 6 --save-every 100 --resume auto --report_to tensorboard ";
  const auto killed = bench.shell(
      fmt::format("{} '{}/zeroth' --num_gpus 1 finetune {} {} --output out; sleep 1.1",
                  signalled_behind(row_of_step(3), SIGKILL), ZEROTH_BIN_DIR, kTrain, way));
  REQUIRE(fs::exists(bench / "out/train_log.html"));
  good(bench, 1, way);
  CHECK(std::distance(fs::directory_iterator(bench / "out/runs"), fs::directory_iterator()) == 1);
}

TEST_CASE("begins_anew_doubles: a run into another output takes nothing of what came before back") {
  const Workbench bench;
  write_config(bench);
  good(bench, 1, "--steps 3 --resume auto");
  good(bench, 1, "--steps 3 --resume auto --output other");
  CHECK(samples_in(bench, "lr").size() == 6);
}

TEST_CASE("a plan without a checkpoint, or whose run has steps left, is not finished") {
  RunPlan plan;
  CHECK(finished_message(plan).empty());
  plan.resume_plan.emplace();
  plan.flags.output = "/no/such";
  CHECK(finished_message(plan).empty());
}

}  // namespace zeroth::trainer::finished_run_test
