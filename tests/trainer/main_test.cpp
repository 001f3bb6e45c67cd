// What a user can get wrong is said once, whatever the ranks, before anything expensive.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::main_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGood = "--model model --data train.bin --seq-len 16 --steps 1 ";

// The complaint of a run that must fail with exit code 2.
std::string usage_error(const Workbench& bench, const std::string& arguments) {
  const auto result = bench.finetune(arguments);
  CHECK_MESSAGE(result.code == 2, arguments << "\n" << result.out << result.err);
  CHECK_MESSAGE(result.err.starts_with("finetune: error: "), result.err);
  return result.err;
}

}  // namespace

TEST_CASE("flags, paths and configuration that are wrong are named") {
  const Workbench bench;
  bench.write("bad.json", R"({"zero_optimisation": {"stage": 2}})");
  bench.write("broken.jsonl", "{\"text\": \"fine\"}\n{\"text\": 3}\n");
  CHECK(has(usage_error(bench, "--modle model"), "did you mean --model?"));
  const auto paths = usage_error(bench, "--model nowhere --data none.bin --deepspeed none.json");
  for (const char* path : {"nowhere", "none.bin", "none.json"})
    CHECK_MESSAGE(has(paths, path), path);
  const auto config = usage_error(bench, "--model model --data none.jsonl --deepspeed bad.json");
  CHECK(has(config, "none.jsonl"));
  CHECK(has(config, "zero_optimization"));
  CHECK(has(usage_error(bench, "--model model --data broken.jsonl"), "broken.jsonl:2"));
  CHECK(has(usage_error(bench, std::string(kGood) + "--metrics none/m.jsonl"), "none/m.jsonl"));
}

TEST_CASE("the metrics of an earlier run outlive one that does not start") {
  const Workbench bench;
  bench.write("m.jsonl", "old\n");
  usage_error(bench, std::string(kGood) + "--metrics m.jsonl --deepspeed none.json");
  CHECK(bench.read("m.jsonl") == "old\n");
  bench.write("model/model.safetensors", "broken");
  usage_error(bench, std::string(kGood) + "--metrics m.jsonl");
  CHECK(bench.read("m.jsonl") == "old\n");
}

TEST_CASE("help and configuration have no rank's number before their lines") {
  const Workbench bench;
  const auto help = bench.zeroth(2, "--help");
  CHECK(help.code == 0);
  CHECK_FALSE(has(help.out, "[0]"));
  CHECK(help.out == bench.finetune("--help").out);
  const auto config = bench.zeroth(2, "--model model --print-config --global-batch 8");
  CHECK(config.code == 0);
  CHECK_FALSE(has(config.out, "[0]"));
  CHECK(has(config.out, "\"train_micro_batch_size_per_gpu\": 4"));
}

TEST_CASE("an error that comes after flags and file were merged names flags as they were typed") {
  const Workbench bench;
  bench.write("ds.json", R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                             "gradient_accumulation_steps": 3})");
  const auto said = [&](const std::string& line) {
    const auto result = bench.finetune("--model model --print-config --deepspeed ds.json " + line);
    return result.out + result.err;
  };
  CHECK(has(said("--micro_batch 3 --global_batch 7"),
            "--global_batch 7 != micro 3 * accumulation 3 * ranks 1: set --global_batch to 9"));
  CHECK(has(said("--learning_rate 1"),
            "optimizer.params.lr: 0.001 in the file, but "
            "--learning_rate 1.0; make them equal"));
  CHECK(has(said("--tensor_parallel 3"), "--tensor_parallel: 3 does not divide"));
  CHECK(has(said("--adam_beta1 2"), "--adam_beta1: expected [0, 1), found 2"));
  CHECK(has(said("--adam-beta2 2 --adam_beta1 0.9"),
            "--adam_beta1, --adam-beta2: expected [0, 1), found 2"));
  CHECK(has(said("--per_device_train_batch_size 2 --weight-decay 0.5"), "// --weight-decay\n"));
  CHECK(has(said("--per_device_train_batch_size 2"), "// --per_device_train_batch_size\n"));
}

TEST_CASE("what is wrong with flags, files or the model takes no restart") {
  const Workbench bench;
  bench.write("bad/config.json", bench.read("model/config.json"));
  bench.write("bad/tokenizer.json", bench.read("model/tokenizer.json"));
  bench.write("bad/model.safetensors", "broken");
  bench.write("wrong.json", R"({"zero_optimization": {"stage": 4}})");
  for (const char* wrong :
       {"--model model --data train.bin --modle model", "--model model --data none.bin",
        "--model model --data train.bin --deepspeed wrong.json", "--model bad --data train.bin",
        "--model model --data train.bin --metrics none/m.jsonl"}) {
    CAPTURE(wrong);
    const auto result = bench.shell(
        fmt::format("'{}/zeroth' --num_gpus 2 --max-restarts 2 finetune --seq-len 16 --steps 1 "
                    "--global-batch 2 --micro-batch 1 {}",
                    ZEROTH_BIN_DIR, wrong));
    CHECK_MESSAGE(result.code == 2, result.err);
    CHECK_FALSE(has(result.err, "round 1"));
    CHECK(has(result.err, "the run is not restarted: exit code 2 is a usage error\n"));
  }
}

TEST_CASE("a wrong environment is named") {
  const Workbench bench;
  const auto result = bench.finetune(kGood, "RANK=2 WORLD_SIZE=2");
  CHECK(result.code == 2);
  CHECK(has(result.err, "RANK=2"));
}

TEST_CASE("an output that is not empty is kept unless it may be overwritten") {
  const Workbench bench;
  fs::create_directory(bench / "out");
  bench.write("out/notes.txt", "mine");
  const std::string run = std::string(kGood) + "--global-batch 2 --micro-batch 1 --output out ";
  auto refused = bench.zeroth(2, run);
  const auto rank_1_spoke = [&] { return has(refused.out + refused.err, "[1]"); };
  // It leaves a launcher two seconds to end it, of which a busy machine may take all.
  for (int more = 2; more > 0 && rank_1_spoke(); --more) refused = bench.zeroth(2, run);
  CHECK(refused.code == 2);
  CHECK(has(refused.err, "[0] finetune: error: out is not empty"));
  CHECK(has(refused.err, "--overwrite"));
  CHECK_FALSE(rank_1_spoke());
  CHECK_FALSE(fs::exists(bench / "out/config.json"));
  const auto done = bench.zeroth(2, run + "--overwrite");
  REQUIRE_MESSAGE(done.code == 0, done.out << done.err);
  CHECK(fs::exists(bench / "out/config.json"));
}

TEST_CASE("an empty output folder is taken") {
  const Workbench bench;
  fs::create_directory(bench / "out");
  const auto result = bench.finetune(std::string(kGood) + "--output out");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(fs::exists(bench / "out/model.safetensors"));
}

}  // namespace zeroth::trainer::main_test
