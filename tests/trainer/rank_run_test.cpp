// Starts the real programs: the same run again, and the ways to start and configure one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/machine/cpu.h"
#include "model/hf/safetensors.h"
#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::rank_run_test {
namespace {

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 8 --micro-batch 2 --lr 1e-3 "
    "--steps 8 --metrics m.jsonl ";

// The losses of kTrain on two ranks; it runs once for all tests.
const std::vector<double>& expected_losses() {
  static const std::vector<double> values = [] {
    const Workbench bench;
    const auto result = bench.zeroth(2, kTrain);
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    return losses(bench.steps("m.jsonl"));
  }();
  return values;
}

// A command that starts both by hand.
std::string two_ranks() {
  return fmt::format(
      "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n"
      "RANK=1 LOCAL_RANK=1 \"$FINETUNE\" {} &\n"
      "RANK=0 LOCAL_RANK=0 \"$FINETUNE\" {} && wait $!",
      free_port(), kTrain, kTrain);
}

}  // namespace

TEST_CASE("the same command twice gives bit-equal losses, another seed others") {
  const Workbench bench;
  REQUIRE(bench.zeroth(2, kTrain).code == 0);
  CHECK(losses(bench.steps("m.jsonl")) == expected_losses());
  REQUIRE(bench.zeroth(2, std::string(kTrain) + "--seed 7").code == 0);
  CHECK(losses(bench.steps("m.jsonl")) != expected_losses());
}

TEST_CASE("a multimodal model's checkpoints and output keep what is not its language model") {
  const Workbench bench;
  const std::filesystem::path source = ZEROTH_SOURCE_DIR "/tests/model/fixtures/mistral3";
  bench.write("ds.json", R"({"zero_optimization": {"stage": 3}})");
  const auto run = [&](const std::string& more) {
    const auto result = bench.zeroth(
        2, fmt::format("--model {} --data train.bin --seq-len 16 --global-batch 4 --lr 1e-2 "
                       "--deepspeed ds.json --steps 4 --save-every 2 --metrics m.jsonl {}",
                       source.string(), more));
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    return result.out;
  };
  CHECK(has(run("--output out"),
            "not trained, and copied to a saved model: 15 tensors beside the language model"));
  const std::vector<double> all = losses(bench.steps("m.jsonl"));
  run("--output again --resume out/checkpoints/step-2");
  CHECK(losses(bench.steps("m.jsonl")).back() == all.back());
  const model::SafetensorsDirectory before(source);
  for (const char* saved_in : {"out", "out/checkpoints/step-2", "again"}) {
    const model::SafetensorsDirectory after(bench / saved_in);
    CHECK(after.entries().size() == before.entries().size());
    for (const auto& [name, tensor] : before.entries()) {
      const bool trained = name.starts_with("language_model.");
      const auto saved = after.entries().find(name);
      REQUIRE_MESSAGE(saved != after.entries().end(), name);
      const auto bytes = [](const model::SafetensorsDirectory::FileTensor& entry) {
        return entry.file->bytes(*entry.tensor);
      };
      CHECK_MESSAGE(std::ranges::equal(bytes(tensor), bytes(saved->second)) != trained, name);
    }
  }
}

TEST_CASE("two ranks run under torchrun's environment as under zeroth") {
  const Workbench bench;
  const auto result = bench.shell(two_ranks());
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(losses(bench.steps("m.jsonl")) == expected_losses());
}

TEST_CASE(
    "ranks that would compute by different instructions end before the first step, with why") {
  if (cpu_isa() == CpuIsa::kBaseline) {
    MESSAGE("skipped: this processor, or ZEROTH_CPU, has no other level than plain");
    return;
  }
  const Workbench bench;
  const auto result = bench.shell(fmt::format(
      "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n"
      "RANK=1 LOCAL_RANK=1 ZEROTH_CPU=plain \"$FINETUNE\" {} 2> one & one=$!\n"
      "RANK=0 LOCAL_RANK=0 \"$FINETUNE\" {} 2> zero; code=$?; wait $one; echo codes $code $?",
      free_port(), kTrain, kTrain));
  CHECK(has(result.out, "codes 1 1"));
  for (const char* rank : {"zero", "one"}) {
    const std::string said = bench.read(rank);
    CHECK_MESSAGE(
        has(said,
            fmt::format("error: rank 1 computes with plain, rank 0 with {}: their results would "
                        "differ. Set ZEROTH_CPU=plain in the environment of all ranks\n",
                        to_string(cpu_isa()))),
        said);
  }
  CHECK(bench.steps("m.jsonl").empty());
}

TEST_CASE("without OMP_NUM_THREADS the ranks of a host share its cores") {
  const Workbench bench;
  const auto result = bench.shell("unset OMP_NUM_THREADS\n" + two_ranks());
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const size_t part = std::max<size_t>(1, allowed_cores().size() / 2);
  CHECK(has(result.out, fmt::format("2 on cpu, {} thread", part)));
}

TEST_CASE("a configuration file and flags give the same run") {
  const Workbench bench;
  bench.write("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})");
  const auto result = bench.zeroth(2, std::string(kTrain) + "--deepspeed ds.json");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const auto& expected = expected_losses();
  const auto found = losses(bench.steps("m.jsonl"));
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(2e-5));
}

TEST_CASE("Hugging Face's spellings run what ours run") {
  const Workbench bench;
  bench.write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "train_batch_size": "auto", "bf16": {"enabled": "auto"},
    "gradient_clipping": "auto", "zero_optimization": {"stage": 3}})");
  REQUIRE(bench
              .zeroth(1,
                      "--model model --data train.bin --seq-len 16 --deepspeed ds.json --bf16 "
                      "--micro-batch 2 --accumulation 2 --epochs 1 --lr 1e-3 --warmup-ratio 0.25 "
                      "--lr_scheduler_type linear --max-grad-norm 0.5 --metrics m.jsonl")
              .code == 0);
  const auto expected = losses(bench.steps("m.jsonl"));
  const auto result = bench.zeroth(
      1,
      "--model_name_or_path model --train_file train.bin --block_size 16 --deepspeed ds.json "
      "--bf16 True --do_train --per_device_train_batch_size 2 --gradient_accumulation_steps 2 "
      "--num_train_epochs 1 --learning_rate 0.001 --warmup_ratio 0.25 --lr_scheduler_type linear "
      "--max_grad_norm 0.5 --output_dir out --overwrite_output_dir --save_steps 4 --logging_steps "
      "1 "
      "--report_to none --metrics m.jsonl");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(expected.size() == 10);
  CHECK(losses(bench.steps("m.jsonl")) == expected);
  CHECK(std::filesystem::exists(bench / "out/checkpoints/step-4/model.safetensors"));
}

TEST_CASE("the configuration is printed without a model's weights or data") {
  const Workbench bench;
  const auto result = bench.finetune("--model model --print-config --global-batch 8 --bf16");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const auto config = nlohmann::json::parse(result.out, nullptr, true, /*ignore_comments=*/true);
  CHECK(config["train_batch_size"] == 8);
  CHECK(config["bf16"]["enabled"] == true);
  CHECK(config["optimizer"]["params"]["lr"] == 5e-5);
}

TEST_CASE("--print-config says of flags and keys without effect what the run says") {
  const Workbench bench;
  bench.write("ds.json", R"({
    "train_batch_size": 2, "no_such_section": 1,
    "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})");
  const std::string line =
      "--model model --data train.bin --steps 1 --deepspeed ds.json --disable_tqdm True "
      "--max_grad_norm 1 --logging_dir runs ";
  const auto run = bench.finetune(line);
  REQUIRE_MESSAGE(run.code == 0, run.out << run.err);
  const auto printed = bench.finetune(line + "--print-config");
  REQUIRE_MESSAGE(printed.code == 0, printed.out << printed.err);
  CHECK(nlohmann::json::parse(printed.out, nullptr, true, /*ignore_comments=*/true).is_object());
  const auto said = [](const std::string& text, const std::string& before) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string each; std::getline(stream, each);) {
      for (const char* title : {"note ", "warning "}) {
        if (each.starts_with(before + title)) lines.push_back(each.substr(before.size()));
      }
    }
    return lines;
  };
  std::vector<std::string> of_run = said(run.out + run.err, "");
  std::erase_if(of_run, [](const std::string& each) { return has(each, "will not be saved"); });
  CHECK(of_run.size() >= 4);
  CHECK(said(printed.out, "// ") == of_run);
  for (const char* part :
       {"--disable_tqdm: no effect here", "no_such_section", "has no effect: this run computes"}) {
    CHECK_MESSAGE(has(printed.out, part), printed.out);
  }
  // The disk of another machine: it is printed, and not run.
  bench.write("file", "");
  bench.write("ds.json", R"({"train_batch_size": 2, "zero_optimization": {"stage": 1,
    "offload_optimizer": {"device": "nvme", "nvme_path": "file/folder"}}})");
  CHECK(bench.finetune(line + "--print-config").code == 0);
  CHECK(bench.finetune(line).code != 0);
}

}  // namespace zeroth::trainer::rank_run_test
