// A run that is ended and goes on, as a user does it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "checkpoint/find.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::resume_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain =
    "--model model --seq-len 16 --global-batch 12 --data train.bin --lr 1e-2 "
    "--lr_scheduler_type linear ";

Workbench::Result good(const Workbench& bench, int ranks, const std::string& arguments,
                       const char* train = kTrain) {
  const auto result = bench.zeroth(ranks, train + arguments);
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  return result;
}

std::vector<int64_t> steps_of(const Workbench::Rows& rows) {
  std::vector<int64_t> steps;
  for (const auto& row : rows) steps.push_back(row["step"]);
  return steps;
}

}  // namespace

TEST_CASE("a run that is killed goes on with the bits of the one that is not; logs have no gap") {
  const Workbench bench;
  const std::string way = "--steps 12 --save-every 4 --eval-data train.bin --eval-every 4 ";
  good(bench, 2, way + "--output whole --metrics whole.jsonl");
  const auto killed = bench.shell(fmt::format(
      "{} '{}/zeroth' --num_gpus 2 finetune {} {} --output out --metrics m.jsonl --save-sync",
      signalled_behind(row_of_step(6), SIGKILL), ZEROTH_BIN_DIR, kTrain, way));
  CAPTURE(killed.err);
  REQUIRE(killed.code == 128 + SIGKILL);
  REQUIRE(fs::exists(bench / "out/checkpoints/step-4"));
  REQUIRE_FALSE(fs::exists(bench / "out/model.safetensors"));
  const auto again = good(bench, 2, way + "--output out --metrics m.jsonl --resume");
  CHECK(has(again.out, "resumes from "));
  CHECK(steps_of(bench.steps("m.jsonl")) ==
        std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(losses(bench.steps("m.jsonl")) == losses(bench.steps("whole.jsonl")));
  CHECK(steps_of(bench.evaluations("m.jsonl")) == std::vector<int64_t>{4, 8, 12});
  CHECK((bench.read("out/model.safetensors") == bench.read("whole/model.safetensors")));
  for (const char* file : {"pieces-00000.safetensors", "pieces-00001.safetensors"}) {
    CHECK((bench.read(fmt::format("out/checkpoints/step-12/zeroth/{}", file)) ==
           bench.read(fmt::format("whole/checkpoints/step-12/zeroth/{}", file))));
  }
  const auto state = nlohmann::json::parse(bench.read("out/trainer_state.json"));
  CHECK(state["global_step"] == 12);
}

TEST_CASE("each checkpoint is the model of its step, with config and tokenizer") {
  const Workbench bench;
  good(bench, 2, "--steps 4 --save-every 2 --output out --bf16");
  CHECK((bench.read("out/checkpoints/step-4/model.safetensors") ==
         bench.read("out/model.safetensors")));
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK_MESSAGE((bench.read(fmt::format("out/checkpoints/step-4/{}", name)) ==
                   bench.read(fmt::format("out/{}", name))),
                  name);
  }
}

TEST_CASE("a finished run goes on for longer, and with the same total ends well") {
  const Workbench bench;
  const std::string constant =
      "--model model --seq-len 16 --global-batch 12 --data train.bin --lr 1e-2 ";
  const auto run = [&](const std::string& more) { return good(bench, 1, more, constant.c_str()); };
  const std::string out = "--save-every 3 --output out --metrics m.jsonl ";
  run("--steps 8 --output whole --metrics whole.jsonl");
  run(out + "--steps 4");
  CHECK(fs::exists(bench / "out/checkpoints/step-4"));
  run(out + "--steps 4 --resume");
  CHECK(steps_of(bench.steps("m.jsonl")) == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(has(run(out + "--steps 8 --resume").out, "steps was 4, is now 8"));
  CHECK(losses(bench.steps("m.jsonl")) == losses(bench.steps("whole.jsonl")));
  const auto fewer = bench.zeroth(1, constant + "--steps 2 --output out --resume");
  CHECK(fewer.code == 2);
  CHECK(has(fewer.err, "step-8 has taken 8 steps, but this run ends after 2"));
}

TEST_CASE("a run goes on with other ranks, also ones that do not divide its batch") {
  const Workbench bench;
  good(bench, 2, "--steps 6 --save-every 3 --output whole --metrics whole.jsonl");
  fs::create_directories(bench / "out");
  for (const int ranks : {1, 3, 5}) {
    fs::remove_all(bench / "out");
    const auto rest = good(
        bench, ranks, "--steps 6 --output out --metrics m.jsonl --resume whole/checkpoints/step-3");
    CHECK(has(rest.out, fmt::format("ranks was 2, is now {}", ranks)));
    const auto seen = losses(bench.steps("m.jsonl")), all = losses(bench.steps("whole.jsonl"));
    REQUIRE(seen.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(seen[i] == doctest::Approx(all[i + 3]).epsilon(2e-5));
    fs::remove(bench / "m.jsonl");
  }
}

TEST_CASE("another batch is refused, and where it is allowed the samples go on") {
  const Workbench bench;
  good(bench, 1, "--epochs 1 --save-every 2 --output out");  // 40 samples: 3 steps and a rest of 4
  const std::string other =
      "--model model --data train.bin --seq-len 16 --global-batch 6 --lr 1e-2 "
      "--lr_scheduler_type linear --epochs 1 --output out --metrics m.jsonl ";
  const auto refused = bench.zeroth(1, other + "--resume out/checkpoints/step-2");
  CHECK(refused.code == 2);
  CHECK(has(refused.err,
            "train_batch_size (--global-batch) was 12, is now 6; --allow-batch-change lets it"));
  const auto allowed =
      bench.zeroth(1, other + "--resume out/checkpoints/step-2 --allow-batch-change");
  REQUIRE_MESSAGE(allowed.code == 0, allowed.out << allowed.err);
  // 16 samples are left: 6 + 6 + 4.
  CHECK(steps_of(bench.steps("m.jsonl")) == std::vector<int64_t>{3, 4, 5});
}

TEST_CASE("a run goes on with the samples of the first one, whatever the spelling of its line") {
  const Workbench bench;
  // 40 samples, 16 a step: an epoch ends within a step, or with a short one.
  const std::string ours =
      "--model model --data train.bin --seq-len 16 --micro-batch 16 --lr 1e-2 --no-decay ";
  const std::string trainers =
      "--model_name_or_path model --train_file train.bin --block_size 16 "
      "--per_device_train_batch_size 16 --learning_rate 1e-2 --lr_scheduler_type constant ";
  const std::pair<std::string, std::string> pairs[] = {
      {ours + "--lr_scheduler_type constant ", trainers},
      {trainers, ours + "--lr_scheduler_type constant "}};
  for (const auto& [first, second] : pairs) {
    CAPTURE(first);
    fs::remove_all(bench / "out");
    fs::remove_all(bench / "whole");
    good(bench, 1, "--steps 8 --output whole --metrics whole.jsonl --overwrite", first.c_str());
    good(bench, 1, "--steps 2 --save-every 2 --output out --metrics m.jsonl", first.c_str());
    const auto rest =
        good(bench, 1, "--steps 8 --output out --metrics m.jsonl --resume", second.c_str());
    CHECK(has(rest.out, "epochs end as when this run started: "));
    CHECK(losses(bench.steps("m.jsonl")) == losses(bench.steps("whole.jsonl")));
    fs::remove(bench / "m.jsonl");
  }
}

TEST_CASE("a run that ended with its samples goes on with the next epoch's first ones") {
  const Workbench bench;
  const std::string line =
      "--model model --data train.bin --seq-len 16 --global-batch 12 --lr 1e-2 ";
  const auto run = [&](const std::string& more) {
    good(bench, 1, "--save-every 2 --output out --metrics m.jsonl " + more, line.c_str());
  };
  run("--epochs 1");  // 12 + 12 + 12 + 4
  run("--epochs 2 --resume");
  int64_t trained = 0;
  for (const auto& row : bench.steps("m.jsonl")) trained += row["trained_tokens"].get<int64_t>();
  CHECK(trained == 2 * 40 * 16);
}

TEST_CASE("--micro-batch and --accumulation that make another batch are refused") {
  const Workbench bench;
  const std::string line = "--model model --data train.bin --seq-len 16 --lr 1e-2 --output out ";
  good(bench, 2, "--micro-batch 2 --accumulation 2 --steps 2 --save-every 2", line.c_str());
  const auto refused = bench.zeroth(2, line + "--micro-batch 2 --steps 4 --resume");
  CHECK(refused.code == 2);
  CHECK(has(refused.err,
            "--micro-batch 2 on 2 ranks give a global batch of 4, but the checkpoint's run has 8: "
            "--allow-batch-change resumes with 4, --global-batch 8 keeps it"));
  good(bench, 1, "--micro-batch 2 --accumulation 2 --steps 3 --resume", line.c_str());
  good(bench, 2, "--micro-batch 4 --steps 4 --resume", line.c_str());
  const auto smaller =
      good(bench, 2, "--micro-batch 2 --steps 5 --resume --allow-batch-change", line.c_str());
  CHECK(has(smaller.out, "train_batch_size was 8, is now 4"));
}

TEST_CASE("what must be equal is refused in a second, with both values") {
  const Workbench bench;
  const std::string same = "--model model --seq-len 16 --global-batch 12 ";
  const auto run = [&](const std::string& more) { return bench.finetune(same + more); };
  REQUIRE(run("--data train.bin --lr 1e-2 --steps 2 --save-every 1 --output out").code == 0);
  const auto refused = [&](const std::string& more) {
    const auto result = run("--steps 4 --output out --resume " + more);
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(has(refused("--data train.bin --learning_rate 1e-3"),
            "optimizer.params.lr (--learning_rate) was 0.01, is now 0.001; --allow-change "
            "optimizer.params.lr lets it"));
  CHECK(has(refused("--data qa.jsonl --lr 1e-2"), "data.crc32c was "));
  CHECK(has(refused("--data train.bin --lr 1e-2 --seed 3"), "seed was 42, is now 3"));
  const auto allowed = run(
      "--steps 4 --output out --resume --data train.bin --lr 1e-3 --allow-change optimizer.params");
  CHECK_MESSAGE(allowed.code == 0, allowed.err);
}

TEST_CASE("a checkpoint with a damaged piece gives way to the one before, and that is told") {
  const Workbench bench;
  good(bench, 2, "--steps 6 --save-every 2 --save_total_limit 0 --output out --metrics m.jsonl");
  const auto whole = losses(bench.steps("m.jsonl"));
  std::fstream pieces(bench / "out/checkpoints/step-6/zeroth/pieces-00001.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
  pieces.seekp(-3, std::ios::end);
  pieces.put('x');
  pieces.close();
  fs::remove(bench / "out/trainer_state.json");  // the run was killed before its end
  const auto again =
      good(bench, 2, "--steps 6 --save-every 2 --output out --metrics m.jsonl --resume");
  CHECK_MESSAGE(has(again.out, "pieces-00001.safetensors is damaged"), again.out);
  CHECK(has(again.out, "resumed after step 4, not 6"));
  CHECK(losses(bench.steps("m.jsonl")) == whole);
}

TEST_CASE(
    "SIGTERM saves a checkpoint, from which --resume auto goes on; there is none to begin with") {
  const Workbench bench;
  const std::string run = std::string(kTrain) + "--steps 10 --save-every 1000 --output out ";
  const auto stopped = bench.shell(fmt::format(
      "CUDA_VISIBLE_DEVICES= \"$FINETUNE\" {} --use_cpu true --resume auto --accumulation 4 "
      "--micro-batch 3 --metrics m.jsonl "
      "> said & pid=$!\n"
      "until grep -q '\"loss\"' m.jsonl 2> /dev/null || ! kill -0 $pid; do sleep 0.01; done\n"
      "kill -TERM $pid; wait $pid",
      run));
  CAPTURE(stopped.err);
  CHECK(stopped.code == 143);
  const auto file_system = checkpoint::locate(bench / "out").file_system;
  REQUIRE(file_system);
  CHECK(checkpoint::list_checkpoints(*file_system).size() == 1);
  CHECK_FALSE(fs::exists(bench / "out/model.safetensors"));
  good(bench, 1, "--steps 10 --save-every 1000 --output out --metrics m.jsonl --resume auto");
  CHECK(steps_of(bench.steps("m.jsonl")) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(fs::exists(bench / "out/model.safetensors"));
}

TEST_CASE("--save_only_model keeps models from which no run goes on") {
  const Workbench bench;
  good(bench, 2, "--steps 3 --save-every 1 --save_only_model true --output out");
  CHECK(fs::exists(bench / "out/checkpoints/step-3/model.safetensors"));
  CHECK_FALSE(fs::exists(bench / "out/checkpoints/step-1"));
  const auto refused = bench.finetune(std::string(kTrain) + "--steps 4 --output out --resume");
  CHECK(refused.code == 2);
  CHECK(has(refused.err, "step-3 is a model without states"));
}

TEST_CASE("a checkpoint is saved whenever so much time has passed") {
  const Workbench bench;
  const auto result = good(bench, 2, "--steps 30 --save-minutes 0.0001 --output out");
  CHECK(has(result.out, "saved out/checkpoints/step-"));
  CHECK(checkpoint::list_checkpoints(*checkpoint::locate(bench / "out").file_system).size() == 2);
  CHECK(fs::exists(bench / "out/checkpoints/step-30"));
}

TEST_CASE("what cannot be saved in the time that a signal leaves is not begun, and that is said") {
  const Workbench bench;
  const auto stopped = bench.shell(
      fmt::format("CUDA_VISIBLE_DEVICES= \"$FINETUNE\" {} --use_cpu true --steps 100000 "
                  "--save-every 40 --output out "
                  "--grace 0.000001 > said & pid=$!\n"
                  "until grep -q 'saved out/checkpoints/' said || ! kill -0 $pid; do sleep 0.01; "
                  "done\n"
                  "kill -TERM $pid; wait $pid",
                  kTrain));
  CHECK(stopped.code == 143);
  const std::string said = bench.read("said");
  CHECK_MESSAGE(has(said, " is not saved: writing the last one took "), said);
  CHECK(has(said, "--grace 1e-06 leaves 0"));
  CHECK(has(said, "; the newest good model is out/checkpoints/step-"));
}

TEST_CASE(
    "best_checkpoint_gone: told before the first step, and the best of what is there counts") {
  const Workbench bench;
  const std::string way =
      "--model model --seq-len 16 --global-batch 12 --data train.bin --lr 1e-2 --eval-data "
      "train.bin "
      "--max-eval-samples 4 --eval-every 2 --save-every 2 --load_best_model_at_end "
      "--greater_is_better True ";
  const auto run = [&](const std::string& more) { return good(bench, 2, more, way.c_str()); };
  const auto state = [&](const std::string& out) {
    return nlohmann::json::parse(bench.read(out + "/trainer_state.json"));
  };
  run("--steps 6 --output out");
  const int64_t best = state("out")["best_global_step"];
  REQUIRE(best == 2);  // the greatest loss is the first one
  fs::copy(bench / "out", bench / "all", fs::copy_options::recursive);
  // One is left that was evaluated.
  fs::remove_all(bench / "out/checkpoints/step-2");
  const auto one = run("--steps 8 --output out --resume");
  CHECK(has(one.out,
            "out/checkpoints/step-2 is missing, which had the best model so far; of the remaining "
            "ones out/checkpoints/step-"));
  CHECK(one.out.find("step-2 is missing") < one.out.find("step 7/8"));
  CHECK(state("out")["global_step"] == 8);
  CHECK(state("out")["best_global_step"] > 2);
  // In another output the best one of before is found where it is.
  const auto other = run("--steps 8 --output other --resume all");
  CHECK_FALSE(has(other.out, "is missing, which had"));
  CHECK(state("other")["best_global_step"] == 2);
  CHECK((bench.read("other/model.safetensors") ==
         bench.read("all/checkpoints/step-2/model.safetensors")));
  // None is left but the one that the run goes on from, whose evaluation it is.
  for (const char* step : {"step-2", "step-4"}) fs::remove_all(bench / "all/checkpoints" / step);
  run("--steps 8 --output all --resume");
  CHECK(state("all")["best_global_step"] >= 6);
}

TEST_CASE("changed_data_on_resume: each key that nothing lets differ names a road") {
  const Workbench bench;
  bench.write("t.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
  const std::string way =
      "--model model --global-batch 1 --data t.jsonl --output out --save-every 2 ";
  REQUIRE(bench.finetune(way + "--seq-len 32 --steps 2").code == 0);
  const auto refused = [&](const std::string& more) {
    const auto result = bench.finetune(way + "--steps 4 --resume " + more);
    CHECK(result.code == 2);
    CHECK(has(result.err, "to start a new run from its weights, use --model "));
    CHECK(has(result.err, "out/checkpoints/step-2 without --resume"));
    return result.err;
  };
  CHECK(has(refused("--seq-len 16"),
            "data.positions was 32, is now 16; --seq-len must stay the same"));
  CHECK(
      has(refused("--seq-len 32 --no-shuffle"), "data.shuffled was yes, is now no; --no-shuffle"));
  CHECK(has(refused("--seq-len 32 --seed 7"), "seed was 42, is now 7; --seed must stay the same"));
  bench.write("t.jsonl", bench.read("t.jsonl") + "{\"text\": \"four\"}\n");
  CHECK(has(refused("--seq-len 32"), "; the samples have changed: --data must stay the same"));
  const auto anew = bench.finetune(
      "--model out/checkpoints/step-2 --global-batch 1 --data t.jsonl --seq-len 32 --steps 2");
  CHECK_MESSAGE(anew.code == 0, anew.err);
}

TEST_CASE("trainers_own_checkpoint: what another program saved is called by its name") {
  const Workbench bench;
  fs::create_directories(bench / "out/checkpoint-5/global_step5");
  for (const auto& entry : fs::directory_iterator(bench / "model")) {
    fs::copy(entry, bench / "out/checkpoint-5" / entry.path().filename());
  }
  bench.write("out/checkpoint-5/trainer_state.json", "{}");
  bench.write("out/checkpoint-5/model.safetensors", "x");
  const auto refused = [&](const std::string& resume) {
    const auto result = bench.finetune(
        "--model model --data train.bin --seq-len 16 --steps 4 --output out " + resume);
    CHECK(result.code == 2);
    return result.err;
  };
  for (const char* const resume :
       {"--resume_from_checkpoint True", "--resume out/checkpoint-5", "--resume auto"}) {
    const std::string said = refused(resume);
    CHECK_MESSAGE(has(said,
                      "checkpoint-5 is a checkpoint of Hugging Face's Trainer with DeepSpeed "
                      "(it contains global_step5), whose states are not supported"),
                  said);
    CHECK_MESSAGE(has(said, "--model out/checkpoint-5 starts from its weights"), said);
  }
  fs::create_directories(bench / "megatron/iter_0000100");
  CHECK(has(refused("--resume megatron"),
            "is a checkpoint of Megatron-LM (it contains iter_0000100)"));
}

}  // namespace zeroth::trainer::resume_test
