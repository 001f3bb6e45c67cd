// Starts the real programs: the same run again, and the ways to start and configure one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 8 --micro-batch 2 --lr 1e-3 "
    "--steps 8 --metrics m.jsonl ";

}  // namespace

TEST_CASE("the same command twice gives bit-equal losses, another seed others") {
  const Workbench bench;
  REQUIRE(bench.zeroth(2, kTrain).code == 0);
  const auto first = losses(bench.steps("m.jsonl"));
  REQUIRE(bench.zeroth(2, kTrain).code == 0);
  CHECK(losses(bench.steps("m.jsonl")) == first);
  REQUIRE(bench.zeroth(2, std::string(kTrain) + "--seed 7").code == 0);
  CHECK(losses(bench.steps("m.jsonl")) != first);
}

TEST_CASE("two ranks run under torchrun's environment as under zeroth") {
  const Workbench bench;
  REQUIRE(bench.zeroth(2, kTrain).code == 0);
  const auto expected = losses(bench.steps("m.jsonl"));
  const std::string ranks = fmt::format(
      "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n"
      "RANK=1 LOCAL_RANK=1 \"$FINETUNE\" {} &\n"
      "RANK=0 LOCAL_RANK=0 \"$FINETUNE\" {} && wait $!",
      free_port(), kTrain, kTrain);
  const auto result = bench.shell(ranks);
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(losses(bench.steps("m.jsonl")) == expected);
}

TEST_CASE("a configuration file and flags give the same run") {
  const Workbench bench;
  bench.write("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})");
  REQUIRE(bench.zeroth(2, kTrain).code == 0);
  const auto expected = losses(bench.steps("m.jsonl"));
  const auto result = bench.zeroth(2, std::string(kTrain) + "--deepspeed ds.json");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  const auto found = losses(bench.steps("m.jsonl"));
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(2e-5));
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

}  // namespace zeroth::trainer
