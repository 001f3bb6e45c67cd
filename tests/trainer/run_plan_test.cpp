#include "trainer/run_plan.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

// `line` with names in the workbench's folder written as @name.
RunPlan plan(const Workbench& bench, std::string line, int64_t world_size = 1) {
  for (size_t at = 0; (at = line.find('@')) != std::string::npos;) {
    line.replace(at, 1, (bench / "").string());
  }
  return make_plan(parse_line(line), world_size);
}

bool notes_have(const RunPlan& plan, std::string_view part) {
  return std::any_of(plan.notes.begin(), plan.notes.end(),
                     [&](const std::string& note) { return has(note, part); });
}

}  // namespace

TEST_CASE("epochs count in samples, to the nearest one") {
  CHECK(samples_of_epochs(1, 41) == 41);
  CHECK(samples_of_epochs(2, 41) == 82);
  CHECK(samples_of_epochs(0.5, 40) == 20);
  CHECK(samples_of_epochs(1.1, 10) == 11);
  CHECK(samples_of_epochs(0.01, 40) == 1);
}

TEST_CASE("a live limit that cannot hold two blocks is found before the ranks connect") {
  const Workbench bench;
  bench.write("tight.json",
              R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 100,
                                        "stage3_param_persistence_threshold": 0}})");
  const std::string line =
      "--model @model --data @train.bin --seq-len 16 --micro-batch 1 --deepspeed @tight.json";
  CHECK_THROWS_WITH_AS(plan(bench, line, 2), doctest::Contains("the smallest value that works is"),
                       Error);
  CHECK_NOTHROW(plan(bench, line, 1));
}

TEST_CASE("epochs beyond any run are an error, not one step") {
  CHECK_THROWS_WITH_AS(samples_of_epochs(1e30, 40),
                       "--epochs 1e+30: 40 samples each make more than 1000000000000000 samples",
                       Error);
}

TEST_CASE("steps of epochs are whole batches that leave no sample out, the last one may be short") {
  const Workbench bench;
  const std::string line = "--model @model --data @train.bin --seq-len 16 --global-batch 16 ";
  CHECK(plan(bench, line).total_steps == 3);
  CHECK(plan(bench, line).train_samples == 40);
  CHECK(plan(bench, line + "--epochs 2").total_steps == 5);
  CHECK(plan(bench, line + "--epochs 2.5").train_samples == 100);
  CHECK(plan(bench, line + "--steps 3").train_samples > 3 * 16);
}

TEST_CASE("a data file that is missing is named with its flag, before any tokenizer") {
  const Workbench bench;
  std::filesystem::remove(bench / "model/tokenizer.json");
  const auto error_of = [&](const std::string& line) {
    try {
      plan(bench, "--model @model --global-batch 1 --seq-len 16 " + line);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* name : {"none.jsonl", "none.txt", "none.bin"}) {
    CHECK(error_of(fmt::format("--data {}", name)) == fmt::format("--data {}: no such file", name));
    CHECK(error_of(fmt::format("--data @train.bin --eval-data {}", name)) ==
          fmt::format("--eval-data {}: no such file", name));
  }
  const std::string lengthy(300, 'x');
  CHECK(error_of("--data " + lengthy) == "--data " + lengthy + ": File name too long");
}

TEST_CASE("a plan knows data, steps and batch of the run") {
  const Workbench bench;
  const RunPlan made = plan(bench,
                            "--model @model --data @train.bin --eval-data @qa.jsonl --prompt-field "
                            "question --completion-field answer --seq-len 16 --global-batch 8 "
                            "--micro-batch 2 --max-eval-samples 5",
                            2);
  CHECK(made.train->size() == 40);
  CHECK(made.eval->size() == 13);
  CHECK(made.eval_samples == 5);
  CHECK(made.total_steps == 5);
  CHECK(made.seq_len == 16);
  CHECK(made.train_deal(1, 2).global_batch() == 8);
  CHECK(made.train_deal(1, 2).micro_steps == 2);
  CHECK(made.eval_deal(1, 2).micro_steps == 1);
  CHECK(made.config.batch.accumulation_steps == 2);
}

TEST_CASE("without --seq-len a sample has as many positions as the model, and that is said") {
  const Workbench bench;
  const RunPlan made = plan(bench, "--model @model --data @train.bin --global-batch 1");
  CHECK(made.seq_len == 128);
  CHECK(notes_have(made, "no --seq-len: 128 positions"));
}

TEST_CASE("rotary embeddings go beyond the model's positions with a note, a table does not") {
  const Workbench bench;
  const std::string line = "--model @model --data @train.bin --global-batch 1 --seq-len 200";
  CHECK(notes_have(plan(bench, line), "beyond the 128 positions"));
  bench.write("model/config.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 448, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "activation_function": "gelu_new", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
    "layer_norm_epsilon": 1e-5})");
  CHECK_THROWS_AS(plan(bench, line), Error);
}

TEST_CASE("evaluation alone plans no training") {
  const Workbench bench;
  const RunPlan made = plan(bench, "--model @model --eval-only --data @train.bin --seq-len 16");
  CHECK(made.train == nullptr);
  CHECK(made.total_steps == 0);
  CHECK(made.eval_samples == 40);
  CHECK_FALSE(notes_have(made, "no batch size given"));
  CHECK(notes_have(plan(bench, "--model @model --data @train.bin --seq-len 16"),
                   "no batch size given"));
}

TEST_CASE("the configuration is resolved without data") {
  const Workbench bench;
  const RunPlan made = plan(bench, "--model @model --print-config --global-batch 4");
  CHECK(made.train == nullptr);
  CHECK(made.eval == nullptr);
  CHECK(made.config.batch.train_batch_size == 4);
}

}  // namespace zeroth::trainer
