// Runs of transformers' Trainer with DeepSpeed, of which tools/make_trainer_fixtures.py wrote
// losses and rates, and the same command lines here.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::trainer_runs_test {
namespace {

using Json = nlohmann::json;

const Json& fixtures() {
  static const Json runs =
      Json::parse(std::ifstream(ZEROTH_SOURCE_DIR "/tests/trainer/fixtures/trainer_runs.json"));
  return runs;
}

const Json& fixture(const std::string& name) {
  const auto found = std::find_if(fixtures().begin(), fixtures().end(),
                                  [&](const Json& run) { return run["name"] == name; });
  REQUIRE_MESSAGE(found != fixtures().end(), name);
  return *found;
}

// As one types them, for as many ranks.
std::string flags_of(const Json& run, int ranks) {
  std::string line;
  for (const auto& [name, value] : run["flags"].items()) {
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (name == "per_device_train_batch_size") text = std::to_string(value.get<int>() / ranks);
    line += fmt::format(" --{} '{}'", name, text);
  }
  // Trainer's default of 8 is for one rank.
  if (!run["flags"].contains("per_device_train_batch_size") && ranks > 1) {
    line += fmt::format(" --per_device_train_batch_size {}", 8 / ranks);
  }
  return line;
}

struct Largest {
  double loss = 0;
  double rate = 0;
};

// The same on so many ranks.
Largest compare(const Json& run, int ranks) {
  CAPTURE(run["name"].dump());
  const Workbench bench;
  bench.write("ds.json", run["ds_config"].dump());
  const std::string model =
      fmt::format("{}/tests/model/fixtures/{}", ZEROTH_SOURCE_DIR, run["model"].get<std::string>());
  const bool evaluates = run.contains("eval_losses");
  const auto result = bench.zeroth(
      ranks,
      fmt::format("--model_name_or_path '{}' --train_file train.bin {}--output_dir out "
                  "--block_size 16 --no-shuffle --save_strategy no --deepspeed ds.json "
                  "--metrics m.jsonl{}",
                  model, evaluates ? "--validation_file train.bin " : "", flags_of(run, ranks)));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const Workbench::Rows rows = bench.steps("m.jsonl");
  REQUIRE(rows.size() == run["losses"].size());
  Largest largest;
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    const double loss = rows[i]["loss"], rate = rows[i]["lr"];
    largest.loss = std::max(largest.loss, std::abs(loss - run["losses"][i].get<double>()));
    largest.rate = std::max(largest.rate, std::abs(rate - run["rates"][i].get<double>()));
    CHECK(std::abs(loss - run["losses"][i].get<double>()) <= 2e-5);
    CHECK(std::abs(rate - run["rates"][i].get<double>()) <= 1e-7 * run["rates"][i].get<double>());
  }
  if (!evaluates) return largest;
  const Workbench::Rows evaluations = bench.evaluations("m.jsonl");
  REQUIRE(evaluations.size() == run["eval_losses"].size());
  for (size_t i = 0; i < evaluations.size(); ++i) {
    CHECK(std::abs(evaluations[i]["eval_loss"].get<double>() -
                   run["eval_losses"][i].get<double>()) <= 2e-5);
  }
  return largest;
}

}  // namespace

TEST_CASE("losses and rates are those of transformers' Trainer with DeepSpeed") {
  Largest largest;
  for (size_t i = 0; i < fixtures().size(); ++i) {
    const Largest of_run = compare(fixtures()[i], i % 3 == 0 ? 1 : 2);
    largest.loss = std::max(largest.loss, of_run.loss);
    largest.rate = std::max(largest.rate, of_run.rate);
  }
  MESSAGE(fixtures().size() << " runs: losses differ by at most " << largest.loss << ", rates by "
                            << largest.rate);
}

TEST_CASE("the runs beside Trainer have every schedule, and an optimizer of the file decays all") {
  std::map<std::string, int> schedules;
  for (const Json& run : fixtures()) ++schedules[run["flags"].value("lr_scheduler_type", "")];
  CHECK(schedules.size() == 12);  // eleven, and no flag
  const Json by_file = fixture("optimizer of the file, stage 2")["losses"];
  const Json by_trainer = fixture("no optimizer in the file, stage 2")["losses"];
  CHECK(std::abs(by_file[11].get<double>() - by_trainer[11].get<double>()) > 1e-4);
}

TEST_CASE("stages do not change the losses of Trainer's defaults") {
  const Json none = fixture("Trainer's defaults, stage 0");
  for (const int stage : {1, 2, 3}) {
    const Json staged = fixture(fmt::format("Trainer's defaults, stage {}", stage));
    CHECK(staged["rates"] == none["rates"]);
    for (size_t i = 0; i < 12; ++i) {
      CHECK(std::abs(staged["losses"][i].get<double>() - none["losses"][i].get<double>()) < 2e-6);
    }
  }
}

}  // namespace zeroth::trainer::trainer_runs_test
