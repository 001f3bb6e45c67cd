#include "trainer/run_adapter.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <map>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::run_adapter_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kData =
    "--model base --data train.bin --seq-len 16 --micro-batch 2 --lr 1e-2 ";

// A model with weights in base/.
struct Base : Workbench {
  Base() {
    const auto made =
        finetune("--model model --data train.bin --seq-len 16 --steps 1 --output base");
    REQUIRE_MESSAGE(made.code == 0, made.err);
  }
};

std::vector<double> train(const Workbench& bench, int ranks, const std::string& more) {
  const auto result = bench.zeroth(ranks, fmt::format("{} --metrics m.jsonl {}", kData, more));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  return losses(bench.steps("m.jsonl"));
}

std::string refusal(const Workbench& bench, const std::string& more) {
  const auto result = bench.finetune(kData + more);
  CHECK(result.code != 0);
  return result.err;
}

// Every file in a directory, with its bytes.
std::map<std::string, std::string> contents(const Workbench& bench, const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(bench / directory)) {
    if (entry.is_regular_file())
      files[entry.path().filename().string()] = bench.read(fs::relative(entry.path(), bench / "."));
  }
  return files;
}

}  // namespace

TEST_CASE("a run with adapters saves an adapter, which another run continues or evaluates") {
  const Base bench;
  bench.write("ds.json", R"({"lora": {"r": 4, "target_modules": "all-linear"}})");
  const auto first = train(bench, 1, "--deepspeed ds.json --steps 4 --no-shuffle --output out");
  CHECK(first.back() < first.front());
  CHECK(fs::exists(bench / "out/adapter_model.safetensors"));
  CHECK(fs::exists(bench / "out/tokenizer.json"));
  CHECK(!fs::exists(bench / "out/model.safetensors"));
  CHECK(!fs::exists(bench / "out/config.json"));
  const auto config = nlohmann::json::parse(bench.read("out/adapter_config.json"));
  CHECK(config["r"] == 4);
  CHECK(config["peft_type"] == "LORA");
  CHECK(config["base_model_name_or_path"] == "base");

  const auto again = train(bench, 1, "--adapter out --steps 1 --no-shuffle");
  CHECK(again.front() < first.front());
  const auto evaluated = bench.finetune(
      "--model base --eval-data train.bin --seq-len 16 --eval-only --adapter out --metrics "
      "e.jsonl");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  const auto base = bench.finetune(
      "--model base --eval-data train.bin --seq-len 16 --eval-only --metrics b.jsonl");
  REQUIRE_MESSAGE(base.code == 0, base.err);
  const double with = bench.evaluations("e.jsonl").back()["eval_loss"];
  CHECK(with < bench.evaluations("b.jsonl").back()["eval_loss"].get<double>());
}

TEST_CASE(
    "a run with adapters resumes bit by bit, also on other ranks, from what is trained alone") {
  const Base bench;
  bench.write("ds.json", R"({"train_batch_size": 4, "zero_optimization": {"stage": 3},
                             "lora": {"target_modules": ["q_proj", "down_proj"], "lora_dropout": 0.1}})");
  const std::string flags = "--deepspeed ds.json --no-shuffle --save-every 2 ";
  const auto whole = train(bench, 1, flags + "--steps 4 --output whole");
  train(bench, 1, flags + "--steps 2 --output out");
  CHECK(fs::file_size(bench / "out/checkpoints/step-2/adapter_model.safetensors") <
        fs::file_size(bench / "base/model.safetensors") / 4);
  CHECK(!fs::exists(bench / "out/checkpoints/step-2/model.safetensors"));
  fs::copy(bench / "out", bench / "other", fs::copy_options::recursive);
  const auto rest = train(bench, 1, flags + "--steps 4 --output out --resume");
  CHECK(rest == whole);  // the rows of the first steps are kept
  CHECK(contents(bench, "out").at("adapter_model.safetensors") ==
        contents(bench, "whole").at("adapter_model.safetensors"));
  const auto exported = bench.shell(fmt::format("'{}/zeroth' export out exported", ZEROTH_BIN_DIR));
  REQUIRE_MESSAGE(exported.code == 0, exported.err);
  for (const char* const name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const auto saved = bench.read(fmt::format("out/checkpoints/step-4/{}", name));
    CHECK_MESSAGE(contents(bench, "exported").at(name) == saved, name);
  }
  const auto two = train(bench, 2, flags + "--steps 4 --output other --resume");
  REQUIRE(two.size() == rest.size());
  for (size_t i = 0; i < two.size(); ++i) CHECK(two[i] == doctest::Approx(rest[i]).epsilon(1e-5));

  // One weight of the base is another.
  std::string weights = bench.read("base/model.safetensors");
  weights[weights.size() - 3] ^= 1;
  bench.write("base/model.safetensors", weights);
  const auto refused =
      bench.zeroth(1, fmt::format("{} {} --steps 6 --output out --resume", kData, flags));
  CHECK(refused.code != 0);
  CHECK(has(refused.err, "model.weights"));
}

TEST_CASE("the best adapter is the one that the run ends with") {
  const Base bench;
  bench.write("ds.json", R"({"lora": {"r": 4}})");
  std::string unlike;  // Unlike the data of training: each step makes it less likely.
  for (int i = 0; i <= 16 * 4; ++i) unlike += {'\x3b', '\0'};
  bench.write("unlike.bin", unlike);
  train(bench, 2,
        "--deepspeed ds.json --steps 6 --output out --eval-data unlike.bin --eval_strategy steps "
        "--eval_steps 1 --save_steps 1 --load_best_model_at_end");
  int64_t best = 0;
  double best_loss = std::numeric_limits<double>::infinity();
  for (const nlohmann::json& row : bench.evaluations("m.jsonl")) {
    if (row["eval_loss"].is_number() && row["eval_loss"] < best_loss) {
      best_loss = row["eval_loss"];
      best = row["step"];
    }
  }
  REQUIRE(best > 0);
  REQUIRE(best < 6);
  const auto adapter = [&](const std::string& directory) {
    return contents(bench, directory).at("adapter_model.safetensors");
  };
  CHECK(adapter("out") == adapter(fmt::format("out/checkpoints/step-{}", best)));
  CHECK(adapter("out") != adapter("out/checkpoints/step-6"));
}

TEST_CASE("what differs from the adapter that a run continues is refused, except dropout") {
  const Base bench;
  bench.write("ds.json", R"({"lora": {"r": 4}})");
  train(bench, 1, "--deepspeed ds.json --steps 1 --output out");
  const std::string message = refusal(bench, "--steps 1 --adapter out --lora_r 8");
  CHECK(has(message, "lora.r"));
  CHECK(has(message, "8"));
  CHECK(has(message, "4 of --adapter out"));
  train(bench, 1, "--steps 1 --adapter out --lora_dropout 0.2");
  train(bench, 1, "--steps 1 --adapter out --lora_r 4");
  CHECK(has(refusal(bench, "--steps 1 --adapter nowhere"), "nowhere"));
  CHECK(has(refusal(bench, "--steps 1 --use_peft --lora_target_modules nothing_of_it x"),
            "lora.target_modules"));
}

TEST_CASE("an adapter of another model is refused with both shapes") {
  const Base bench;
  bench.write("ds.json", R"({"lora": {"r": 4, "target_modules": ["down_proj"]}})");
  train(bench, 1, "--deepspeed ds.json --steps 1 --output out");
  auto config = nlohmann::json::parse(bench.read("model/config.json"));
  const int64_t size = config["intermediate_size"];
  config["intermediate_size"] = 2 * size;
  bench.write("model/config.json", config.dump());
  const auto result =
      bench.finetune("--model model --data train.bin --seq-len 16 --steps 1 --adapter out");
  CHECK(result.code != 0);
  for (const std::string& part : {std::string("down_proj.lora_A"), fmt::format("[4, {}]", size),
                                  fmt::format("[4, {}]", 2 * size)}) {
    CHECK_MESSAGE(has(result.err, part), result.err);
  }
}

}  // namespace zeroth::trainer::run_adapter_test
