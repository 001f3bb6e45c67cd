#include "trainer/run_plan.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/samples/batch.h"
#include "data/samples/sample_order.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/step_trigger.h"

namespace zeroth::trainer::run_plan_test {
namespace {

// `line` with names in the workbench's folder written as @name.
RunPlan plan(const Workbench& bench, std::string line, int64_t world_size = 1) {
  for (size_t at = 0; (at = line.find('@')) != std::string::npos;) {
    line.replace(at, 1, (bench / "").string());
  }
  return make_plan(parse_line(line), world_size);
}

template <typename Action>
std::string complaint_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool notes_have(const RunPlan& plan, std::string_view part) {
  return std::any_of(plan.notes.begin(), plan.notes.end(),
                     [&](const configs::Diagnostic& note) { return has(note.text, part); });
}

}  // namespace

TEST_CASE("a run that saves checkpoints knows in its plan what makes it the same run") {
  const Workbench bench;
  const std::string line = "--model @model --data @train.bin --seq-len 16 --global-batch 4 ";
  const RunPlan saves = plan(bench, line + "--output @out --save-every 2", 2);
  CHECK(saves.fingerprint.must_equal.contains("data.crc32c"));
  CHECK(saves.fingerprint.may_change.at("ranks") == "2");
  for (const char* more : {"", "--output @out", "--output @out --save-every 2 --print-config",
                           "--eval-only --eval-data @train.bin"}) {
    CHECK_MESSAGE(plan(bench, line + more).fingerprint.must_equal.empty(), more);
  }
}

TEST_CASE("silent_no_output: a run that keeps nothing warns of that, and no other run does") {
  const Workbench bench;
  const std::string data = "--model @model --data @train.bin --seq-len 16 ";
  const auto warned = [&](const std::string& more) {
    const RunPlan made = plan(bench, data + more);
    const auto warnings = diagnostic_lines(made.notes, configs::Diagnostic::Kind::kWarning);
    return std::any_of(warnings.begin(), warnings.end(), [](const std::string& text) {
      return has(text, "the trained model will not be saved: --output is missing. ");
    });
  };
  CHECK(warned("--steps 2"));
  CHECK(warned("--steps 2 --metrics m.jsonl --eval-data @train.bin --eval-every 1"));
  CHECK(warned("--max_steps 2 --learning_rate 1e-3 --report_to tensorboard"));
  CHECK_FALSE(warned("--steps 2 --output @out"));
  CHECK_FALSE(warned("--max_steps 2 --output_dir @out"));
  CHECK_FALSE(warned("--eval-only"));
  CHECK_FALSE(warned("--print-config"));
}

TEST_CASE("epochs count in samples, to the nearest one") {
  CHECK(samples_in_epochs(1, 41) == 41);
  CHECK(samples_in_epochs(2, 41) == 82);
  CHECK(samples_in_epochs(0.5, 40) == 20);
  CHECK(samples_in_epochs(1.1, 10) == 11);
  CHECK(samples_in_epochs(0.01, 40) == 1);
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
  CHECK_THROWS_WITH_AS(samples_in_epochs(1e30, 40),
                       "--epochs 1e+30: 40 samples each make more than 1000000000000000 samples",
                       Error);
}

TEST_CASE("steps of epochs are whole batches that leave no sample out, the last one may be short") {
  const Workbench bench;
  const std::string line = "--model @model --data @train.bin --seq-len 16 --global-batch 16 ";
  CHECK(plan(bench, line).samples.total_steps == 3);
  CHECK(plan(bench, line).samples.train_samples == 40);
  CHECK(plan(bench, line + "--epochs 2").samples.total_steps == 5);
  CHECK(plan(bench, line + "--epochs 2.5").samples.train_samples == 100);
  CHECK(plan(bench, line + "--steps 3").samples.train_samples > 3 * 16);
}

TEST_CASE("epochs of a line for Trainer are three, each of whole steps, the last one short") {
  const Workbench bench;
  const std::string line = "--model_name_or_path @model --train_file @train.bin --block_size 16 ";
  CHECK(plan(bench, line).samples.total_steps == 15);  // 40 samples, 8 a step
  const std::string ragged =
      line + "--per_device_train_batch_size 4 --gradient_accumulation_steps 4 ";
  const RunPlan three = plan(bench, ragged);
  CHECK(three.samples.total_steps == 9);  // not 8
  CHECK(three.samples.train_samples == 120);
  CHECK(three.samples_after(2) == 32);
  CHECK(three.samples_after(3) == 40);
  CHECK(three.samples_after(4) == 56);
  CHECK(three.epochs_after(4) == 1 + 0.4);
  CHECK(three.epochs_after(9) == 3);
  const data::SampleOrder order = three.sample_order();
  CHECK(std::ranges::count(order.samples(32, 16), data::kNoSample) == 8);
  CHECK(std::ranges::count(order.samples(48, 16), data::kNoSample) == 0);
  CHECK(three.trigger({.mode = Interval::Mode::kEpochs}).is_due(3));
  CHECK(three.trigger({.mode = Interval::Mode::kEpochs}).num_before_end() == 2);
  CHECK(plan(bench, ragged + "--num_train_epochs 1.5").samples.total_steps == 5);  // of 4.5
  CHECK(plan(bench, ragged + "--num_train_epochs 1.5").samples.train_samples == 72);
  CHECK(plan(bench, ragged + "--max_steps 7").samples.total_steps == 7);
  CHECK(plan(bench, ragged + "--max_steps 7").samples_after(7) == 96);
  CHECK(three.eval_partition(0).micro_batch == 8);
  // Left out is what fills no micro-batch of all ranks; accumulation may still end short.
  const RunPlan drops = plan(bench, ragged + "--dataloader_drop_last True", 3);
  CHECK(drops.samples.epoch_samples == 36);
  CHECK(drops.samples.total_steps == 3);
  CHECK(plan(bench, "--model @model --data @train.bin --seq-len 16 --global-batch 16 --epochs 3")
            .samples.total_steps == 8);
}

TEST_CASE("a data file that is missing is named with its flag, before any tokenizer") {
  const Workbench bench;
  std::filesystem::remove(bench / "model/tokenizer.json");
  const auto error_of = [&](const std::string& line) {
    return complaint_of(
        [&] { plan(bench, "--model @model --global-batch 1 --seq-len 16 " + line); });
  };
  for (const char* name : {"none.jsonl", "none.txt", "none.bin"}) {
    CHECK(error_of(fmt::format("--data {}", name)) == fmt::format("--data {}: no such file", name));
    CHECK(error_of(fmt::format("--data @train.bin --eval-data {}", name)) ==
          fmt::format("--eval-data {}: no such file", name));
  }
  const std::string lengthy(300, 'x');
  CHECK(error_of("--data " + lengthy) == "--data " + lengthy + ": File name too long");
}

TEST_CASE("everything that is wrong before the data is read comes in one error") {
  const Workbench bench;
  bench.write("bad.json", R"({"zero_optimization": {"stage": 7}, "fp17": {}})");
  std::filesystem::create_directory(bench / "full");
  bench.write("full/notes.txt", "mine");
  const std::string text = complaint_of([&] {
    plan(bench,
         "--model nowhere --data none.bin --eval-data @train.bin --deepspeed @bad.json --output "
         "@full");
  });
  CHECK(has(text, "4 errors\n"));
  CHECK(has(text, "fp17: unknown key"));
  CHECK(has(text, "zero_optimization.stage"));
  CHECK(has(text, "nowhere"));
  CHECK(has(text, "full is not empty"));
  CHECK(has(text, "--data none.bin: no such file"));
  CHECK_FALSE(has(text, "train.bin"));
}

TEST_CASE("dataloader_drop_last leaves out what fills no whole batch of an epoch") {
  const Workbench bench;
  bench.write("drop.json", R"({"dataloader_drop_last": true})");
  bench.write("keep.json", R"({"dataloader_drop_last": false})");
  const std::string line = "--model @model --data @train.bin --seq-len 16 --global-batch 16 ";
  for (const char* asked : {"--drop-last ", "--deepspeed @drop.json "}) {
    const RunPlan made = plan(bench, line + asked + "--epochs 3");
    CHECK(made.samples.total_steps == 6);
    CHECK(made.samples.train_samples == 96);
    CHECK(made.samples.epoch_samples == 32);
    CHECK(made.config.dataloader_drop_last);
    CHECK(notes_have(made, "dataloader_drop_last: 8 of 40 samples are left out of an epoch"));
    CHECK(plan(bench, line + asked + "--steps 5").samples.total_steps == 5);
  }
  const RunPlan kept = plan(bench, line + "--deepspeed @keep.json");
  CHECK(kept.samples.total_steps == 3);
  CHECK(kept.samples.epoch_samples == 40);
  CHECK_THROWS_WITH_AS(plan(bench, line + "--deepspeed @keep.json --drop-last"),
                       doctest::Contains("dataloader_drop_last"), Error);
  CHECK_THROWS_WITH_AS(
      plan(bench, "--model @model --data @train.bin --seq-len 16 --global-batch 64 --drop-last"),
      doctest::Contains("40 samples do not fill a global batch of 64"), Error);
}

TEST_CASE("--dropout overrides config.json, --eval-micro-batch deals evaluations") {
  const Workbench bench;
  const std::string line = "--model @model --data @train.bin --seq-len 16 --micro-batch 2 ";
  CHECK(plan(bench, line).spec.attention_dropout == 0);
  const RunPlan made = plan(bench, line + "--dropout 0.25 --eval-micro-batch 5");
  CHECK(made.spec.attention_dropout == 0.25);
  CHECK(made.train_partition(0).micro_batch == 2);
  CHECK(made.eval_partition(0).micro_batch == 5);
}

TEST_CASE("what a killed run left in the output is cleared away before the next") {
  const Workbench bench;
  std::filesystem::create_directories(bench / "out/step-4.zeroth-tmp-abc123");
  std::filesystem::create_directories(bench / "out.zeroth-tmp-abc123");
  const std::string line =
      "--model @model --data @train.bin --seq-len 16 --micro-batch 2 --output @out ";
  CHECK_THROWS_AS(plan(bench, line + "--print-config"), Error);
  CHECK(std::filesystem::exists(bench / "out.zeroth-tmp-abc123"));
  CHECK_NOTHROW(plan(bench, line));
  CHECK(std::filesystem::is_empty(bench / "out"));
  CHECK_FALSE(std::filesystem::exists(bench / "out.zeroth-tmp-abc123"));
}

TEST_CASE(
    "a tokenizer file that leads out of the model's folder is noted where a model is written") {
  const Workbench bench;
  bench.write("secret", "precious");
  std::filesystem::create_symlink("../secret", bench / "model/tokenizer.model");
  const std::string line = "--model @model --data @train.bin --seq-len 16 --micro-batch 2 ";
  const std::string note = "tokenizer.model is not copied to the output: it links to ";
  CHECK(notes_have(plan(bench, line + "--output @out"), note));
  CHECK_FALSE(notes_have(plan(bench, line), note));
}

TEST_CASE("a plan knows data, steps and batch of the run") {
  const Workbench bench;
  const RunPlan made = plan(bench,
                            "--model @model --data @train.bin --eval-data @qa.jsonl --prompt-field "
                            "question --completion-field answer --seq-len 16 --global-batch 8 "
                            "--micro-batch 2 --max-eval-samples 5",
                            2);
  CHECK(made.samples.train->size() == 40);
  CHECK(made.samples.eval_size() == 5);
  CHECK(made.samples.total_steps == 5);
  CHECK(made.samples.seq_len == 16);
  CHECK(made.train_partition(1).global_batch() == 8);
  CHECK(made.train_partition(1).micro_steps == 2);
  CHECK(made.eval_partition(1).micro_steps == 1);
  CHECK(made.config.batch.accumulation_steps == 2);
}

TEST_CASE("ranks that split layers draw the same samples") {
  const Workbench bench;
  const std::string line =
      "--model @model --data @train.bin --seq-len 16 --micro-batch 2 --tensor-parallel 2 ";
  const RunPlan made = plan(bench, line, 4);
  CHECK(made.config.tensor_parallel.size == 2);
  CHECK(made.num_ranks == 4);
  CHECK(made.data_parallel_size() == 2);
  CHECK(made.config.batch.train_batch_size == 4);
  CHECK(made.samples.total_steps == 10);
  CHECK(made.train_partition(1).world == 2);
  CHECK(made.eval_partition(1).global_batch() == 4);
  CHECK_THROWS_WITH_AS(plan(bench, line, 3),
                       doctest::Contains("--tensor-parallel: 2 does not divide the number of "
                                         "ranks, 3: set it to 1, or start 4 ranks"),
                       Error);
}

TEST_CASE("without --seq-len a sample has as many positions as the model, and that is said") {
  const Workbench bench;
  const RunPlan made = plan(bench, "--model @model --data @train.bin --global-batch 1");
  CHECK(made.samples.seq_len == 128);
  CHECK(notes_have(made, "no --seq-len: 128 positions"));
}

TEST_CASE("rotary embeddings go beyond the model's positions with a note, a table does not") {
  const Workbench bench;
  const std::string line = "--model @model --data @train.bin --global-batch 1 --seq-len 200";
  CHECK(notes_have(plan(bench, line), "exceeds the 128 positions"));
  bench.write("model/config.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 448, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "activation_function": "gelu_new", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
    "layer_norm_epsilon": 1e-5})");
  CHECK_THROWS_AS(plan(bench, line), Error);
  bench.write("model/config.json", R"({"model_type": "mpt", "architectures": ["MptForCausalLM"],
    "vocab_size": 448, "max_seq_len": 128, "d_model": 32, "n_layers": 2, "n_heads": 4})");
  CHECK(notes_have(plan(bench, line), "exceeds the 128 positions of config.json: ALiBi has no"));
}

TEST_CASE("evaluation alone plans no training") {
  const Workbench bench;
  const RunPlan made = plan(bench, "--model @model --eval-only --data @train.bin --seq-len 16");
  CHECK(made.samples.train == nullptr);
  CHECK(made.samples.total_steps == 0);
  CHECK(made.samples.eval_size() == 40);
  CHECK_FALSE(notes_have(made, "no batch size given"));
  CHECK(notes_have(plan(bench, "--model @model --data @train.bin --seq-len 16"),
                   "no batch size given"));
}

TEST_CASE("the configuration is resolved without data") {
  const Workbench bench;
  const RunPlan made = plan(bench, "--model @model --print-config --global-batch 4");
  CHECK(made.samples.train == nullptr);
  CHECK(made.samples.eval == nullptr);
  CHECK(made.config.batch.train_batch_size == 4);
}

}  // namespace zeroth::trainer::run_plan_test
