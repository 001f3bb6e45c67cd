// A model with an adapter added to its weights.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::merge_adapter_test {
namespace {

// Data of 60 tokens, and a Llama with weights in base/.
struct Base : Workbench {
  Base() {
    std::string ids;
    for (int i = 0; i < 16 * 20 + 1; ++i) ids += {static_cast<char>(i * i % 59), '\0'};
    write("small.bin", ids);
    const auto made =
        finetune("--model model --data small.bin --seq-len 16 --steps 1 --output base");
    REQUIRE_MESSAGE(made.code == 0, made.err);
  }
};

double evaluated(const Workbench& bench, const std::string& flags) {
  const auto result = bench.finetune(
      fmt::format("{} --eval-data small.bin --seq-len 16 --eval-only --metrics e.jsonl", flags));
  REQUIRE_MESSAGE(result.code == 0, result.err);
  const double loss = bench.evaluations("e.jsonl").back()["eval_loss"];
  std::filesystem::remove(bench / "e.jsonl");
  return loss;
}

// Trains the adapters of ds.json over a model in adapter/ and merges them in merged/, which then
// has the loss of both together, and not that of the model.
void expect_merged(const Workbench& bench, const std::string& model, int steps) {
  const auto trained = bench.finetune(
      fmt::format("--model {} --data small.bin --seq-len 16 --deepspeed ds.json --steps {} --lr "
                  "1e-2 --output adapter --overwrite",
                  model, steps));
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto merged = bench.finetune(
      fmt::format("--merge --model {} --adapter adapter --output merged --overwrite", model));
  REQUIRE_MESSAGE(merged.code == 0, merged.err);
  CHECK(has(merged.out, "merged"));
  const double together = evaluated(bench, fmt::format("--model {} --adapter adapter", model));
  CHECK(evaluated(bench, "--model merged") == doctest::Approx(together).epsilon(1e-5));
  CHECK(std::abs(evaluated(bench, "--model " + model) - together) > 1e-3);
}

}  // namespace

TEST_CASE("a merged model has the loss of base and adapter together") {
  const Base bench;
  const std::string fixtures = ZEROTH_SOURCE_DIR "/tests/model/fixtures/";
  for (const std::string& model : {std::string("base"), fixtures + "gpt2", fixtures + "mistral3"}) {
    CAPTURE(model);
    bench.write("ds.json", R"({"lora": {"r": 4, "target_modules": "all-linear", "use_rslora": true,
                               "init_lora_weights": false, "bias": "lora_only"}})");
    expect_merged(bench, model, /*steps=*/3);
  }
}

TEST_CASE("an adapter over NF4 is merged into the weights that it was trained over") {
  const Base bench;
  const std::string stored = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama_nf4_double";
  for (const auto& [model, flags] :
       {std::pair<std::string, std::string>("base", "--load_in_4bit"),
        std::pair<std::string, std::string>("base", "--load_in_4bit --use_bnb_nested_quant true "),
        std::pair<std::string, std::string>(stored, "")}) {
    CAPTURE(model);
    CAPTURE(flags);
    bench.write("ds.json", R"({"lora": {"r": 4, "target_modules": "all-linear",
                               "init_lora_weights": false}})");
    const auto trained = bench.finetune(fmt::format(
        "--model {} --data small.bin --seq-len 16 --deepspeed ds.json --steps 3 --lr 1e-2 {} "
        "--output adapter --overwrite",
        model, flags));
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    const auto merged = bench.finetune(
        fmt::format("--merge --model {} --adapter adapter --save-dtype fp32 --output merged "
                    "--overwrite",
                    model));
    REQUIRE_MESSAGE(merged.code == 0, merged.err);
    const double together =
        evaluated(bench, fmt::format("--model {} --adapter adapter {}", model, flags));
    CHECK(evaluated(bench, "--model merged") == doctest::Approx(together).epsilon(1e-5));
    const auto config = nlohmann::json::parse(bench.read("merged/config.json"));
    CHECK_FALSE(config.contains("quantization_config"));
    if (model != "base") continue;
    // Into the weights that were not quantized it does not belong.
    std::filesystem::remove(bench / "adapter/adapter_quantization.json");
    const auto rough =
        bench.finetune("--merge --model base --adapter adapter --output merged --overwrite");
    REQUIRE_MESSAGE(rough.code == 0, rough.err);
    CHECK(std::abs(evaluated(bench, "--model merged") - together) > 1e-5);
  }
}

TEST_CASE("a checkpoint's adapter is exported as it is or merged into its base") {
  const Base bench;
  const auto exports = [&](const std::string& words) {
    return bench.shell(fmt::format("'{}/zeroth' export {}", ZEROTH_BIN_DIR, words));
  };
  const auto trained = bench.finetune(
      "--model base --data small.bin --seq-len 16 --steps 2 --lr 1e-2 --use_peft --save-every 2 "
      "--output out");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto exported = exports("out merged --merge");
  REQUIRE_MESSAGE(exported.code == 0, exported.err);
  CHECK(evaluated(bench, "--model merged") ==
        doctest::Approx(evaluated(bench, "--model base --adapter out")).epsilon(1e-5));
  CHECK(has(exports("out x --base base").err, "no effect without"));
  const auto full = bench.finetune(
      "--model base --data small.bin --seq-len 16 --steps 1 --save-every 1 --output full");
  REQUIRE_MESSAGE(full.code == 0, full.err);
  CHECK(has(exports("full x --merge").err, "holds no adapter"));
}

TEST_CASE("a head that the adapter unties stays untied in the merged model") {
  const Base bench;
  const std::string tied = ZEROTH_SOURCE_DIR "/tests/model/fixtures/qwen3_tied";
  bench.write("ds.json", R"({"lora": {"modules_to_save": ["lm_head"]}})");
  const auto trained = bench.finetune(fmt::format(
      "--model {} --data small.bin --seq-len 16 --deepspeed ds.json --steps 2 --lr 1e-2 "
      "--output adapter",
      tied));
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto merged =
      bench.finetune(fmt::format("--merge --model {} --adapter adapter --output merged", tied));
  REQUIRE_MESSAGE(merged.code == 0, merged.err);
  CHECK(nlohmann::json::parse(bench.read("merged/config.json"))["tie_word_embeddings"] == false);
  CHECK(evaluated(bench, "--model merged") ==
        doctest::Approx(evaluated(bench, fmt::format("--model {} --adapter adapter", tied)))
            .epsilon(1e-5));
}

TEST_CASE("adapters of tables and of a tied head are merged into weights of their own") {
  const Base bench;
  for (const char* model : {"qwen3_tied", "gpt2"}) {
    const std::string base = fmt::format("{}/tests/model/fixtures/{}", ZEROTH_SOURCE_DIR, model);
    for (const char* targets : {"embed_tokens|.*wte|.*wpe|.*o_proj|.*c_attn", "lm_head"}) {
      CAPTURE(targets);
      bench.write("ds.json", fmt::format(R"({{"lora": {{"target_modules": ".*{}",
                                               "init_lora_weights": false, "r": 4}}}})",
                                         targets));
      expect_merged(bench, base, /*steps=*/2);
      CHECK(nlohmann::json::parse(bench.read("merged/config.json"))["tie_word_embeddings"] ==
            false);
    }
  }
}

TEST_CASE("the tables that peft saves beside adapters are to be those of the base") {
  const Base bench;
  const std::string fixtures = ZEROTH_SOURCE_DIR "/tests/";
  for (const char* model : {"qwen3_tied", "gpt2", "llama"}) {
    const std::string base = fixtures + "model/fixtures/" + model;
    const std::string adapter = fixtures + "equivalence/fixtures/adapters/" + model;
    const auto merges = [&](const std::string& from) {
      return bench.finetune(fmt::format(
          "--merge --model {} --adapter {} --output merged --overwrite", from, adapter));
    };
    const auto merged = merges(base);
    CHECK_MESSAGE(merged.code == 0, merged.err);
    CHECK(has(merged.out, "; the head has a weight of its own") == (model != std::string("llama")));
    std::filesystem::remove(bench / "merged/tokenizer.json");
    const auto refused = merges("merged");
    CHECK(refused.code != 0);
    CHECK(has(refused.err, "base_layer.weight with other values than the base model"));
    const auto continues = bench.finetune(fmt::format(
        "--model merged --adapter {} --data small.bin --seq-len 16 --steps 1", adapter));
    CHECK(has(continues.err, "base_layer.weight with other values than the base model"));
  }
}

TEST_CASE("a merge without a model's weights or an adapter says what is missing") {
  const Base bench;
  std::filesystem::create_directory(bench / "empty");
  std::filesystem::copy(bench / "model/config.json", bench / "empty/config.json");
  CHECK(has(bench.finetune("--merge --model empty --adapter x --output y").err, "no weights"));
  CHECK(has(bench.finetune("--merge --model base --adapter model --output y").err,
            "adapter_config.json"));
  CHECK(has(bench.finetune("--merge --model base --output y").err, "--adapter"));
}

}  // namespace zeroth::trainer::merge_adapter_test
