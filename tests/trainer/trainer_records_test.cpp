// Starts the real programs with command lines as people have them for Hugging Face's Trainer.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::trainer_records_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// 40 samples: five steps are an epoch.
constexpr const char* kTrain =
    "--model_name_or_path model --train_file train.bin --validation_file train.bin --output_dir "
    "out "
    "--block_size 16 --per_device_train_batch_size 8 --max_eval_samples 8 --do_train ";

std::string train(const Workbench& bench, const std::string& more, int ranks = 1) {
  const auto result = bench.zeroth(ranks, kTrain + more);
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  return result.out;
}

Json read_json(const Workbench& bench, const std::string& name) {
  return Json::parse(bench.read(name));
}

// Steps of the rows of log_history that have `key`.
std::vector<int> logged(const Workbench& bench, const std::string& key) {
  std::vector<int> steps;
  const Json state = read_json(bench, "out/trainer_state.json");
  for (const Json& row : state["log_history"]) {
    if (row.contains(key)) steps.push_back(row["step"]);
  }
  return steps;
}

}  // namespace

TEST_CASE("a line for Trainer evaluates, saves and logs when it says, and leaves its records") {
  const Workbench bench;
  const std::string out =
      train(bench,
            "--num_train_epochs 3 --eval_strategy epoch --save_strategy epoch --save_total_limit 1 "
            "--logging_steps 0.2 --eval_on_start True");
  CHECK(has(out, "evaluated every epoch; saved every epoch (the newest 1 kept)"));
  CHECK(logged(bench, "eval_loss") == std::vector<int>{0, 5, 10, 15});
  CHECK(logged(bench, "loss") == std::vector<int>{3, 6, 9, 12, 15});
  CHECK(logged(bench, "train_loss") == std::vector<int>{15});
  CHECK_FALSE(fs::exists(bench / "out/checkpoints/step-10"));
  for (const char* file : {"model.safetensors", "config.json", "trainer_state.json"}) {
    CHECK_MESSAGE(fs::exists(bench / "out/checkpoints/step-15" / file), file);
  }
  CHECK(read_json(bench, "out/checkpoints/step-15/trainer_state.json")["global_step"] == 15);
  const Json state = read_json(bench, "out/trainer_state.json");
  CHECK(state["max_steps"] == 15);
  CHECK(state["num_train_epochs"] == 3);
  CHECK(state["logging_steps"] == 3);
  const Json all = read_json(bench, "out/all_results.json");
  CHECK(all["train_samples"] == 40);
  CHECK(all["eval_samples"] == 8);
  CHECK(all["perplexity"].get<double>() ==
        doctest::Approx(std::exp(all["eval_loss"].get<double>())).epsilon(1e-6));
}

TEST_CASE("a line for Trainer has its epochs and decay, a line of the summary says so") {
  const Workbench bench;
  const std::string out = train(bench, "--gradient_accumulation_steps 3 --learning_rate 1e-3");
  CHECK(
      has(out,
          "defaults   Hugging Face Trainer's, whose flags the command line uses: 3 epochs, "
          "linear decay of the rate, no weight decay of norms and biases, a short step at the end "
          "of an epoch"));
  CHECK(has(out, "linear to 0 at step 6"));
  CHECK(read_json(bench, "out/trainer_state.json")["max_steps"] == 6);
}

TEST_CASE("a rate that follows evaluations falls when they do not get better") {
  const Workbench bench;
  const auto result = bench.zeroth(
      2, std::string(kTrain) +
             "--max_steps 6 --eval_strategy steps --eval_steps 1 --learning_rate 1e-9 "
             "--lr_scheduler_type reduce_lr_on_plateau --eval_on_start True --metrics m.jsonl "
             "--lr_scheduler_kwargs '{\"patience\": 1, \"factor\": 0.5, \"eps\": 0}'");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  std::vector<double> rates;
  for (const auto& row : bench.steps("m.jsonl")) rates.push_back(row["lr"]);
  // The first evaluation is the best; the one before the first step does not count.
  CHECK(rates == std::vector<double>{1e-9, 1e-9, 1e-9, 0.5e-9, 0.5e-9, 0.25e-9});
  CHECK(read_json(bench, "out/trainer_state.json").contains("best_metric"));
}

TEST_CASE("the best model takes the place of the last one where that is asked for") {
  const Workbench bench;
  // After the fifth step the rate is far too high.
  bench.write("ds.json", R"({"scheduler": {"type": "LRRangeTest", "params": {
    "lr_range_test_min_lr": 1e-3, "lr_range_test_step_size": 5, "lr_range_test_step_rate": 1e3,
    "lr_range_test_staircase": true}}, "gradient_clipping": 1.0})");
  const std::string out = train(bench,
                                "--max_steps 9 --deepspeed ds.json --load_best_model_at_end True "
                                "--eval_strategy steps --eval_steps 2 --save_steps 2 "
                                "--metric_for_best_model eval_loss --save_total_limit 1",
                                2);
  const Json state = read_json(bench, "out/trainer_state.json");
  const int best = state["best_global_step"];
  CHECK(best < 8);
  CHECK(state["best_model_checkpoint"] == fmt::format("out/checkpoints/step-{}", best));
  CHECK(has(out,
            fmt::format("out has the best model now, copied from out/checkpoints/step-{}", best)));
  const std::string directory = fmt::format("out/checkpoints/step-{}/model.safetensors", best);
  CHECK((bench.read("out/model.safetensors") == bench.read(directory)));
  CHECK(fs::exists(bench / "out/checkpoints/step-9"));  // the newest stays beside the best
  CHECK(read_json(bench, "out/eval_results.json")["eval_loss"] == state["best_metric"]);
}

TEST_CASE("--save_strategy best saves where an evaluation was better than all before") {
  const Workbench bench;
  train(bench,
        "--max_steps 6 --learning_rate 1e-3 --eval_strategy steps --eval_steps 2 --save_strategy "
        "best");
  CHECK(fs::exists(bench / "out/checkpoints/step-2"));
  CHECK(fs::exists(bench / "out/checkpoints/step-4"));
}

TEST_CASE("--do_train False evaluates, records that and leaves the model as it is") {
  const Workbench bench;
  train(bench, "--max_steps 2");
  const std::string weights = bench.read("out/model.safetensors");
  const Json before = read_json(bench, "out/all_results.json");
  const auto result = bench.zeroth(
      1,
      "--model_name_or_path out --train_file train.bin --validation_file train.bin --output_dir "
      "out "
      "--block_size 16 --max_eval_samples 4 --do_train False --do_eval True --num_train_epochs 3");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK_FALSE(has(result.out, "step 1"));
  CHECK((bench.read("out/model.safetensors") == weights));
  const Json after = read_json(bench, "out/all_results.json");
  CHECK(after["train_loss"] == before["train_loss"]);
  CHECK(after["eval_samples"] == 4);
}

TEST_CASE("--max_train_samples takes the first samples only") {
  const Workbench bench;
  const std::string out = train(bench, "--max_train_samples 12 --num_train_epochs 2");
  CHECK(has(out, ": 12 samples of at most"));
  CHECK(has(out, "4 steps = 2 epochs"));
}

TEST_CASE("what would go to a service goes to files in the output") {
  const Workbench bench;
  const std::string out = train(bench, "--max_steps 2 --report_to wandb tensorboard");
  CHECK(has(out, "warning    --report_to wandb: no service is reached from here"));
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(bench / "out/runs")) {
    names.push_back(entry.path().filename().string());
  }
  const auto found = [&](std::string_view part) {
    return std::any_of(names.begin(), names.end(),
                       [&](const auto& name) { return has(name, part); });
  };
  CHECK(found("events.out.tfevents"));
  CHECK(found("Train_Samples_train_loss.csv"));
}

TEST_CASE("--report_to tensorboard writes Trainer's tags over steps, beside the section's own") {
  const Workbench bench;
  bench.write("ds.json", R"({"tensorboard": {"enabled": true, "output_path": "ds"}})");
  train(bench, "--max_steps 4 --logging_steps 2 --report_to tensorboard --deepspeed ds.json");
  const auto bytes_in = [&](const char* directory) {
    std::string bytes;
    for (const auto& entry : fs::recursive_directory_iterator(bench / directory)) {
      if (entry.is_regular_file()) bytes += read_text(entry.path());
    }
    return bytes;
  };
  const auto count = [](const std::string& bytes, std::string_view tag) {
    int found = 0;
    for (size_t at = 0; (at = bytes.find(tag, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  const std::string trainer = bytes_in("out/runs"), deepspeed = bytes_in("ds");
  for (const char* tag : {"train/loss", "train/learning_rate", "train/grad_norm"}) {
    CHECK(count(trainer, tag) == 2);
  }
  CHECK(count(trainer, "train/train_runtime") == 1);
  CHECK(count(trainer, "Train/Samples") == 0);
  CHECK(count(deepspeed, "Train/Samples/lr") == 4);
  CHECK(count(deepspeed, "train/") == 0);
}

TEST_CASE("wandb_key: the key of the file ends as the flag does") {
  const Workbench bench;
  bench.write("ds.json", R"({"wandb": {"enabled": true, "project": "p"}})");
  const std::string out = train(bench, "--max_steps 2 --deepspeed ds.json");
  CHECK(has(out, "warning    wandb: no service is reached from here"));
  CHECK(has(out, "`wandb sync --sync-tensorboard out/runs/"));
  CHECK(fs::exists(bench / "out/runs"));
}

TEST_CASE("a JSON file of arguments is a command line, also behind the launcher") {
  const Workbench bench;
  bench.write("args.json", R"({"model_name_or_path": "model", "train_file": "train.bin",
    "output_dir": "out", "block_size": 16, "max_steps": 2, "per_device_train_batch_size": 4,
    "bf16": false, "deepspeed": {"zero_optimization": {"stage": 1}}})");
  const auto result = bench.zeroth(2, "args.json");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(has(result.out, "ZeRO stage 1"));
  CHECK(read_json(bench, "out/train_results.json").contains("train_loss"));
}

TEST_CASE("an error of a run names the flag that was typed") {
  const Workbench bench;
  bench.write("ds.json", R"({"train_micro_batch_size_per_gpu": 4})");
  const auto result = bench.finetune(std::string(kTrain) + "--deepspeed ds.json");
  CHECK(result.code == 2);
  CHECK_MESSAGE(has(result.err, "4 in the file, but --per_device_train_batch_size 8"), result.err);
}

}  // namespace zeroth::trainer::trainer_records_test
