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

TEST_CASE("an adapter is trained over NF4, resumed, continued and evaluated") {
  const Base bench;
  constexpr const char* kQlora =
      "--use_peft --load_in_4bit --use_bnb_nested_quant true --lora_target_modules all-linear "
      "--no-shuffle ";
  const auto whole = train(bench, 2, fmt::format("{} --steps 6 --output out", kQlora));
  CHECK(whole.back() < whole.front());
  const auto quantization = nlohmann::json::parse(bench.read("out/adapter_quantization.json"));
  CHECK(quantization["dtype"] == "float32");
  CHECK(quantization["quantization_config"]["bnb_4bit_use_double_quant"] == true);
  // Half of it, and the other half from a checkpoint, which holds the adapter alone.
  train(bench, 2, fmt::format("{} --steps 3 --save-every 3 --output half", kQlora));
  const auto rest =
      train(bench, 2, fmt::format("{} --steps 6 --resume auto --output half", kQlora));
  CHECK(rest.back() == whole.back());
  CHECK(bench.read("half/adapter_model.safetensors") ==
        bench.read("out/adapter_model.safetensors"));
  const auto changed = bench.finetune(
      fmt::format("{} --use_peft --load_in_4bit --lora_target_modules all-linear --no-shuffle "
                  "--steps 6 --resume auto --output half",
                  kData));
  CHECK(changed.err.find("quantization.bnb_4bit_use_double_quant") != std::string::npos);

  const auto again = train(
      bench, 1, "--adapter out --load_in_4bit --use_bnb_nested_quant true --steps 1 --no-shuffle");
  CHECK(again.front() < whole.front());
  const auto over_16_bits =
      bench.finetune(fmt::format("{} --adapter out --steps 1 --no-shuffle", kData));
  CHECK(over_16_bits.out.find("out was trained over NF4 with double quantization; this run adds "
                              "it to weights that are not quantized") != std::string::npos);
}

TEST_CASE("weights in 4 bits need adapters, and a model and values that can have them") {
  const Base bench;
  CHECK(refusal(bench, "--load_in_4bit --steps 1").find("cannot be trained: train adapters") !=
        std::string::npos);
  CHECK(refusal(bench, "--load_in_4bit --use_peft --lora_modules_to_save up_proj --steps 1")
            .find("layers.0.mlp.up.weight is in NF4, and cannot be trained in full") !=
        std::string::npos);
  const auto gpt2 = bench.finetune(
      "--model " ZEROTH_SOURCE_DIR
      "/tests/model/fixtures/gpt2 --data train.bin --use_peft --load_in_4bit --steps 1");
  CHECK(gpt2.err.find("NF4 of gpt2 models is not supported") != std::string::npos);
  const auto split = bench.zeroth(
      2, fmt::format("{} --tensor-parallel 2 --use_peft --load_in_4bit --steps 1", kData));
  CHECK((split.out + split.err).find("a block of NF4") != std::string::npos);
  const auto evaluated =
      bench.finetune("--model base --eval-data train.bin --seq-len 16 --eval-only --load_in_4bit");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
}

TEST_CASE("a model whose files hold NF4 trains adapters, and its own form counts") {
  const Base bench;
  const std::string stored = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama_nf4_double";
  std::string ids;
  for (int i = 0; i < 16 * 20 + 1; ++i) ids += {static_cast<char>(i * i % 59), '\0'};
  bench.write("small.bin", ids);
  const std::string flags =
      fmt::format("--model {} --data small.bin --seq-len 16 --steps 2 --output out", stored);
  CHECK(bench.finetune(flags).err.find("cannot be trained") != std::string::npos);
  const auto trained = bench.finetune(flags + " --use_peft");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(nlohmann::json::parse(bench.read("out/adapter_quantization.json"))["dtype"] == "bfloat16");
  const auto other =
      bench.finetune(flags + " --use_peft --load_in_4bit --use_bnb_nested_quant false --overwrite");
  CHECK(other.err.find("quantization.bnb_4bit_use_double_quant: false (--use_bnb_nested_quant), "
                       "but true in the quantization_config") != std::string::npos);
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
