// Starts the real programs: what a run writes, evaluates and keeps.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::trainer_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 8 --micro-batch 2 --lr 1e-3 "
    "--steps 8 --metrics m.jsonl ";
constexpr const char* kQuestions = "--prompt-field question --completion-field answer ";

long occurrences(const std::string& text, const std::string& part) {
  long count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

}  // namespace

TEST_CASE("a run on two ranks writes one metrics line per step, learns and shows a summary") {
  const Workbench bench;
  const auto result = bench.zeroth(2, kTrain);
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const auto rows = bench.steps("m.jsonl");
  REQUIRE(rows.size() == 8);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    CHECK(row["step"] == i + 1);
    CHECK(row["tokens"] == 8 * 16);
    CHECK(row["trained_tokens"] == 8 * 16);
    CHECK(row["lr"] == 1e-3);
    CHECK(row["skipped"] == false);
    CHECK(row["loss_scale"] == 1);
    CHECK(row["step_s"] > 0);
    CHECK(row["tokens_per_s"] > 0);
    CHECK(row["grad_norm"] > 0);
    CHECK(row["peak_rss_mib"] > 10);
    CHECK(row["peak_gpu_mib"] == 0);
    if (i > 1) {  // what is measured after the first step belongs to no step
      const double between =
          row["since_start_s"].get<double>() - rows[i - 1]["since_start_s"].get<double>();
      CHECK(row["step_s"].get<double>() == doctest::Approx(between));
    }
  }
  CHECK(rows.back()["loss"] < rows.front()["loss"].get<double>() - 0.1);
  for (const char* title : {"model ", "data ", "ranks ", "batch ", "precision ", "strategy ",
                            "memory ", "optimizer "}) {
    CHECK_MESSAGE(occurrences(result.out, title) >= 1, title);
  }
  CHECK(occurrences(result.out, "8 samples = 2 per micro-batch x 2 accumulated x 2 ranks") == 1);
  CHECK(occurrences(result.out, "step 8/8 | loss ") == 1);
}

TEST_CASE("the evaluation of a ragged set does not depend on the ranks") {
  const Workbench bench;
  std::vector<double> eval_losses;
  std::vector<int64_t> eval_tokens;
  for (const int ranks : {1, 3}) {
    const auto result = bench.zeroth(
        ranks, fmt::format("--model model --eval-only --data qa.jsonl {} --micro-batch 2 "
                           "--metrics m.jsonl",
                           kQuestions));
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    const auto rows = bench.evaluations("m.jsonl");
    REQUIRE(rows.size() == 1);
    CHECK_FALSE(rows[0].contains("loss"));
    eval_losses.push_back(rows[0]["eval_loss"]);
    eval_tokens.push_back(rows[0]["eval_tokens"]);
  }
  CHECK(eval_tokens[0] > 13);
  CHECK(eval_tokens[1] == eval_tokens[0]);
  CHECK(eval_losses[1] == doctest::Approx(eval_losses[0]).epsilon(1e-6));
}

TEST_CASE("evaluation comes every so many steps and once at the end") {
  const Workbench bench;
  const auto result = bench.zeroth(1, fmt::format("{} {} --eval-data qa.jsonl --eval-every 4 "
                                                  "--max-eval-samples 5",
                                                  kTrain, kQuestions));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const auto rows = bench.evaluations("m.jsonl");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["step"] == 4);
  CHECK(rows[1]["step"] == 8);
}

TEST_CASE("--epochs counts in samples") {
  const Workbench bench;
  REQUIRE(bench
              .zeroth(1,
                      "--model model --data train.bin --seq-len 16 --global-batch 16 --epochs 2 "
                      "--metrics m.jsonl")
              .code == 0);
  CHECK(bench.steps("m.jsonl").size() == 5);
}

TEST_CASE("a run is one epoch whose last step takes what is left of it, whatever the ranks") {
  const Workbench bench;
  bench.write("stage3.json", R"({"zero_optimization": {"stage": 3}, "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"})");
  const std::string common =
      "--model model --data train.bin --seq-len 16 --metrics m.jsonl --deepspeed stage3.json";
  std::vector<double> alone;
  for (const int ranks : {1, 4}) {  // the last step has 8 samples: of ranks 0 and 1
    const auto result = bench.zeroth(ranks, common);
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    CHECK(has(result.out, "2 steps = 1 epoch\n"));
    const auto rows = bench.steps("m.jsonl");
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["trained_tokens"] == 32 * 16);
    CHECK(rows[1]["trained_tokens"] == 8 * 16);
    const auto found = losses(rows);
    if (alone.empty()) alone = found;
    for (size_t i = 0; i < 2; ++i) CHECK(found[i] == doctest::Approx(alone[i]).epsilon(1e-6));
  }
}

TEST_CASE("a rank with nothing but rows that fill up ends its last step with a gradient of zeros") {
  const Workbench bench;
  for (const int stage : {0, 2, 3}) {
    // 40 samples: the third step has 8, all of rank 0. The model is not tied.
    bench.write("ds.json", fmt::format(R"({{"zero_optimization": {{"stage": {},
      "ignore_unused_parameters": false}}, "train_batch_size": 16}})",
                                       stage));
    const auto result = bench.zeroth(
        2, "--model model --data train.bin --seq-len 16 --metrics m.jsonl --deepspeed ds.json");
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    const auto rows = bench.steps("m.jsonl");
    REQUIRE(rows.size() == 3);
    CHECK(rows[2]["trained_tokens"] == 8 * 16);
  }
}

TEST_CASE("the output folder gives the run's last eval loss again") {
  const Workbench bench;
  const std::string eval = fmt::format("{} --eval-data qa.jsonl ", kQuestions);
  const auto trained = bench.zeroth(2, kTrain + eval + "--output out");
  REQUIRE_MESSAGE(trained.code == 0, trained.out << trained.err);
  CHECK(has(trained.out, "saved out"));
  const double last = bench.evaluations("m.jsonl").back()["eval_loss"];
  for (const char* file :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK_MESSAGE(fs::exists(bench / "out" / file), file);
  }
  const auto again =
      bench.zeroth(1, "--model out --eval-only --seq-len 16 --metrics m.jsonl " + eval);
  REQUIRE_MESSAGE(again.code == 0, again.out << again.err);
  const double repeated = bench.evaluations("m.jsonl").back()["eval_loss"];
  CHECK(repeated == doctest::Approx(last).epsilon(1e-6));
}

}  // namespace zeroth::trainer::trainer_test
