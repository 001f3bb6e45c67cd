// The example of a user's own blocks, as a user runs it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace zeroth::engine::custom_model_test {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string output;  // of all ranks, errors included
  std::vector<double>
      losses;  // as printed: of steps 1, 50, 100, 150 and 200, then the unseen text's
};

Outcome run_example(int ranks, const std::string& arguments) {
  const TempFolder directory;
  const std::string command = fmt::format(
      "cd '{}' && DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 timeout -k 5 120 '{}/zeroth' --num_gpus {} "
      "'{}/custom_model' {} > '{}' 2>&1 < /dev/null",
      ZEROTH_SOURCE_DIR, ZEROTH_BIN_DIR, ranks, ZEROTH_BIN_DIR, arguments,
      (directory / "output").string());
  const int status = std::system(command.c_str());
  std::ifstream file(directory / "output");
  Outcome outcome{
      WIFEXITED(status) ? WEXITSTATUS(status) : -1, {std::istreambuf_iterator<char>(file), {}}, {}};
  const std::regex loss("loss ([0-9.]+)");
  for (std::sregex_iterator at(outcome.output.begin(), outcome.output.end(), loss), end; at != end;
       ++at) {
    outcome.losses.push_back(std::stod((*at)[1]));
  }
  return outcome;
}

constexpr const char* kRun = "examples/custom_model/ds_config.json examples/quickstart/train.jsonl";

// Of one rank, with which others are compared: run once.
const Outcome& alone() {
  static const Outcome outcome = run_example(1, kRun);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.output);
  REQUIRE(outcome.losses.size() == 6);
  return outcome;
}

}  // namespace

TEST_CASE("the example learns on two ranks, saves its model, and one rank sees the same losses") {
  const TempFolder directory;
  const Outcome two = run_example(2, fmt::format("{} '{}'", kRun, (directory / "out").string()));
  REQUIRE_MESSAGE(two.code == 0, two.output);
  REQUIRE_MESSAGE(two.losses.size() == 6, two.output);
  CHECK(two.losses.front() == doctest::Approx(std::log(256.0)).epsilon(0.05));
  CHECK(two.losses[4] < 0.5 * two.losses.front());
  CHECK(two.losses[5] < 0.5 * std::log(256.0));
  CHECK(fs::file_size(directory / "out/model.safetensors") > 1'000'000);

  for (size_t i = 0; i < 6; ++i) {
    CHECK(alone().losses[i] == doctest::Approx(two.losses[i]).epsilon(2e-3));
  }
}

TEST_CASE("the example learns the same where two ranks share every layer") {
  const TempFolder directory;
  std::ifstream file(ZEROTH_SOURCE_DIR "/examples/custom_model/ds_config.json");
  std::string config{std::istreambuf_iterator<char>(file), {}};
  config.insert(config.find('{') + 1, "\"tensor_parallel\": {\"autotp_size\": 2},");
  std::ofstream(directory / "config.json") << config;
  const std::string run =
      fmt::format("'{}' examples/quickstart/train.jsonl", (directory / "config.json").string());
  const Outcome shared = run_example(2, fmt::format("{} '{}'", run, (directory / "out").string()));
  REQUIRE_MESSAGE(shared.code == 0, shared.output);
  REQUIRE(shared.losses.size() == 6);
  CHECK(shared.losses.front() == doctest::Approx(std::log(256.0)).epsilon(0.05));
  CHECK(shared.losses[4] < 0.5 * shared.losses.front());
  CHECK(shared.losses[5] < 0.5 * std::log(256.0));
  // Other first values.
  CHECK(shared.losses[4] == doctest::Approx(alone().losses[4]).epsilon(0.05));
  CHECK(fs::file_size(directory / "out/model.safetensors") > 1'000'000);
}

TEST_CASE("the example explains itself, once, and says what is wrong with its arguments") {
  const Outcome help = run_example(2, "--help");
  CHECK(help.code == 0);
  CHECK(help.output.starts_with("usage: custom_model DS_CONFIG TEXT [OUTPUT_FOLDER]\n"));
  CHECK(help.output.find("usage", 1) == std::string::npos);
  const Outcome few = run_example(1, "examples/custom_model/ds_config.json");
  CHECK(few.code == 1);
  CHECK_MESSAGE(few.output.find("custom_model: error: usage: ") != std::string::npos, few.output);
  const std::string config = "examples/custom_model/ds_config.json";
  const Outcome small = run_example(1, config + " " + config);
  CHECK(small.code == 1);
  CHECK_MESSAGE(small.output.find("bytes, 10000 are the least") != std::string::npos, small.output);
}

TEST_CASE("the example ends when its configuration is not there, and says so printably") {
  const Outcome outcome = run_example(2, "'no\x1b[31mwhere.json' text");
  CHECK(outcome.code == 1);
  CHECK_MESSAGE(
      outcome.output.find("custom_model: error: no\\u001b[31mwhere.json") != std::string::npos,
      outcome.output);
  CHECK(outcome.output.find('\x1b') == std::string::npos);
}

}  // namespace zeroth::engine::custom_model_test
