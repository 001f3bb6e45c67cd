// Starts the real program, as on a machine on which everything takes long.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer::long_phases_test {
namespace {

// Before a program: see hasty_clock.cpp.
std::string hasty() {
  return fmt::format("LD_PRELOAD='{}/tests/libhasty_clock.so'", ZEROTH_BIN_DIR);
}

constexpr const char* kTrain =
    "--model model --data qa.jsonl --eval-data qa.jsonl --seq-len 16 --micro-batch 1 "
    "--accumulation 40 --eval-micro-batch 1 --lr 1e-3 --steps 2 --output out ";

// Whether the words stand in the text in this order.
void check_order(const std::string& text, const std::vector<std::string>& words) {
  size_t from = 0;
  for (const std::string& word : words) {
    const size_t found = text.find(word, from);
    CHECK_MESSAGE(found != std::string::npos, word << " is not, or not in this order, in\n"
                                                   << text);
    if (found != std::string::npos) from = found + word.size();
  }
}

}  // namespace

TEST_CASE("a run in which everything takes long tells what it is at, from the data to the end") {
  const Workbench bench;
  const auto run = bench.finetune(kTrain, hasty());
  REQUIRE_MESSAGE(run.code == 0, run.out << run.err);
  check_order(run.out, {"reading qa.jsonl: ",
                        " %, ",
                        " left\n",
                        "reading qa.jsonl: done in ",
                        "model      ",
                        "reading weights: ",
                        " %, ",
                        " left\n",
                        "reading weights: done in ",
                        "step 1 begins\n",
                        "step 1: micro-batch ",
                        " of 40, ",
                        "step 1: done in ",
                        "step 1/2 | loss ",
                        "step 2: micro-batch ",
                        " of 40, ",
                        "step 2/2 | loss ",
                        "evaluation at step 2: ",
                        " of 13 samples, ",
                        "evaluation at step 2: done in ",
                        "eval at step 2 | "});
}

TEST_CASE("a run that goes on tells that it reads a checkpoint, and its own first step") {
  const Workbench bench;
  const auto first = bench.finetune(std::string(kTrain) + "--save-every 1");
  REQUIRE_MESSAGE(first.code == 0, first.out << first.err);
  const auto on = bench.finetune(
      std::string(kTrain) + "--resume out/checkpoints/step-1 --save-every 1", hasty());
  REQUIRE_MESSAGE(on.code == 0, on.out << on.err);
  check_order(on.out, {"out/checkpoints/step-1: ", " %, ", "step-1: done in ", "step 2 begins\n",
                       "step 2: micro-batch ", "step 2: done in ", "step 2/2 "});
}

TEST_CASE("parameters that rest in files are told to be written there") {
  const Workbench bench;
  bench.write("nvme.json", R"({"zero_optimization": {"stage": 3, "offload_param":
      {"device": "nvme", "nvme_path": ".", "max_in_cpu": 0, "buffer_size": 20000}}})");
  const auto run = bench.finetune(std::string(kTrain) + "--deepspeed nvme.json", hasty());
  REQUIRE_MESSAGE(run.code == 0, run.out << run.err);
  CHECK(has(run.out, "reading weights and writing them to "));
}

TEST_CASE("a short run tells of no phase, and one that asks for warnings only of none either") {
  const Workbench bench;
  const auto run = bench.finetune(kTrain);
  bench.write("warnings.json", R"({"log_level": "warning"})");
  const auto quiet =
      bench.finetune(std::string(kTrain) + "--overwrite --deepspeed warnings.json", hasty());
  for (const auto& result : {run, quiet}) {
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    for (const char* word :
         {"reading", "begins", "micro-batch 1", "evaluation", "so far", "done"}) {
      CAPTURE(word);
      CHECK_FALSE(has(result.out, word));
    }
  }
}

TEST_CASE("an answer to --print-config holds nothing else, however long it took") {
  const Workbench bench;
  const auto run = bench.finetune(std::string(kTrain) + "--print-config", hasty());
  REQUIRE_MESSAGE(run.code == 0, run.out << run.err);
  CHECK_FALSE(has(run.out, "reading"));
}

}  // namespace zeroth::trainer::long_phases_test
