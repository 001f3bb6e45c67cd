#include "trainer/checkpoint_manager.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/safetensors.h"
#include "tests/support/ranks.h"
#include "tests/trainer/disk.h"
#include "tests/trainer/names_in.h"
#include "tests/trainer/workbench.h"
#include "trainer/start_point.h"

namespace zeroth::trainer::checkpoint_manager_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 ";

// The weights of a model in out, which a later run is to replace.
std::string weights_of_good_run(const Workbench& bench, const std::string& train) {
  const auto result = bench.zeroth(2, train + "--steps 5");
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  return bench.read("out/model.safetensors");
}

// A rate of 1e-3 for six steps, and then 1e-3 * rate.
void write_rate_that_jumps(const Workbench& bench, const char* rate) {
  bench.write("ds.json", fmt::format(R"({{"scheduler": {{"type": "LRRangeTest", "params": {{
    "lr_range_test_min_lr": 1e-3, "lr_range_test_step_size": 6, "lr_range_test_step_rate": {},
    "lr_range_test_staircase": true}}}}}})",
                                     rate));
}

constexpr const char* kDirectory = "out/checkpoints";

}  // namespace

TEST_CASE(
    "every so many steps, and at the end, a checkpoint is saved, of which the newest two stay") {
  const Workbench bench;
  const auto result = bench.zeroth(
      2, fmt::format("{} --steps 9 --save-every 2 --save-dtype bf16 --output out", kTrain));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(has(result.out, "saved out/checkpoints/step-4 in "));
  CHECK(names_in(bench / kDirectory) ==
        std::set<std::string>{".owner-1", "latest", "step-8", "step-9"});
  for (const char* name : {"config.json", "model.safetensors"}) {
    CHECK_MESSAGE(fs::exists(bench / "out" / name), name);
  }
  const auto config = nlohmann::json::parse(bench.read("out/checkpoints/step-8/config.json"));
  CHECK(config["torch_dtype"] == "bfloat16");
  const model::SafetensorsDirectory saved(bench / "out/checkpoints/step-8");
  CHECK(saved.entries().begin()->second.tensor->dtype == "BF16");
  const auto again = bench.zeroth(1, "--model out/checkpoints/step-8 --eval-only --data train.bin");
  CHECK_MESSAGE(again.code == 0, again.out << again.err);
}

TEST_CASE("a model whose loss is not finite is not saved: the run fails and the good ones stay") {
  const Workbench bench;
  write_rate_that_jumps(bench, "1e20");  // parameters stay finite, products of them do not
  const std::string train = fmt::format("{} --deepspeed ds.json --output out ", kTrain);
  const std::string good = weights_of_good_run(bench, train);
  const auto result = bench.zeroth(2, train + "--overwrite --steps 12 --save-every 2");
  CHECK(result.code == 1);
  CHECK(has(result.out,
            "step 8 is not saved: the loss of step 8 is nan and gradients are not "
            "finite since step 8, first in backward in block "));
  CHECK_MESSAGE(has(result.err,
                    "the loss of step 12 is nan and gradients are not finite since "
                    "step 8, first in backward in block "),
                result.err);
  CHECK(has(result.err, ": no model is saved; the newest good model is out/checkpoints/step-6"));
  CHECK((bench.read("out/model.safetensors") == good));
  CHECK(names_in(bench / kDirectory).contains("step-4"));
  CHECK(names_in(bench / kDirectory).contains("step-6"));
}

TEST_CASE("good models stay until a loss shows that the newest is one, too") {
  const Workbench bench;
  write_rate_that_jumps(bench, "1e20");
  const auto result = bench.zeroth(
      1, fmt::format("{} --deepspeed ds.json --output out --steps 9 --save-every 1", kTrain));
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "the newest good model is out/checkpoints/step-6"), result.err);
  const auto names = names_in(bench / kDirectory);
  for (const char* name : {"step-5", "step-6", "step-7"}) CHECK_MESSAGE(names.contains(name), name);
  CHECK(std::count_if(names.begin(), names.end(), is_step_directory) == 3);
}

TEST_CASE(
    "parameters that are not finite end the run at the next step, or the save that finds them") {
  for (const int64_t steps : {7, 12}) {
    const Workbench bench;
    write_rate_that_jumps(bench, "1e42");  // no fp32 number
    const auto result =
        bench.zeroth(2, fmt::format("{} --deepspeed ds.json --output out --steps {} --save-every 3",
                                    kTrain, steps));
    CHECK(result.code == 1);
    CHECK_MESSAGE(has(result.err, steps == 7 ? "out is not saved: parameter embedding.weight holds "
                                             : "the update before step 8 left parameters that are "
                                               "not finite, the first in block head, parameter "
                                               "head.norm.weight"),
                  result.err);
    CHECK(has(result.err, "; the newest good model is out/checkpoints/step-6"));
    CHECK_FALSE(fs::exists(bench / "out/model.safetensors"));
    CHECK(names_in(bench / kDirectory).contains("step-6"));
  }
}

TEST_CASE("a loss that is not finite is no success without an output either") {
  const Workbench bench;
  write_rate_that_jumps(bench, "1e20");
  const std::string train = fmt::format("{} --deepspeed ds.json ", kTrain);
  const auto result = bench.finetune(train + "--steps 9");
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "the loss of step 9 is nan"), result.err);
  // The last update spoils the model, and only the evaluation sees it.
  const auto evaluated = bench.finetune(train + "--steps 7 --eval-data train.bin --output out");
  CHECK(evaluated.code == 1);
  CHECK_MESSAGE(has(evaluated.err,
                    "the loss of the evaluation at step 7 is nan: the model was "
                    "already saved"),
                evaluated.err);
}

TEST_CASE("a model whose last evaluation is not finite gives its place back to the one before") {
  const Workbench bench;
  write_rate_that_jumps(bench, "1e20");
  const std::string train = fmt::format("{} --deepspeed ds.json --output out ", kTrain);
  const std::string good = weights_of_good_run(bench, train);
  const auto result = bench.zeroth(2, train + "--overwrite --steps 7 --eval-data train.bin");
  CHECK(result.code == 1);
  const std::string said =
      "error: the loss of the evaluation at step 7 is nan: the saved model is in ";
  CHECK_MESSAGE(has(result.err, "rank 0: " + said), result.err);
  CHECK_MESSAGE(has(result.err, " now, and out has the previous one again"), result.err);
  CHECK((bench.read("out/model.safetensors") == good));
  CHECK(fs::exists(bench / "out/train_log.html"));
  const size_t at = result.err.find(said) + said.size();
  const fs::path aside = result.err.substr(at, result.err.find(' ', at) - at);
  CHECK(aside.filename().string().starts_with("out.new-"));
  CHECK(model::SafetensorsDirectory(aside).entries().size() > 10);

  const auto better =
      bench.zeroth(2, train + "--overwrite --steps 6 --save-every 2 --eval-data train.bin");
  REQUIRE_MESSAGE(better.code == 0, better.out << better.err);
  CHECK_FALSE((bench.read("out/model.safetensors") == good));
  for (const std::string& name : names_in(bench / "out/.."))
    CHECK_MESSAGE(!has(name, ".zeroth-"), name);
}

TEST_CASE("a run that is killed while it saves leaves whole models only, and the next clears up") {
  const Workbench bench;
  const std::string train = fmt::format("{} --save-every 1 --output out ", kTrain);
  for (const char* seconds : {"0.00", "0.05", "0.11"}) {
    bench.shell(
        // Each folder is gone two steps later, so a busy shell may miss any one of them.
        fmt::format("rm -rf out*; \"$FINETUNE\" {} --steps 100000 & pid=$!\n"
                    "until ls out/checkpoints 2>&1 | grep -Eqx 'step-([3-9]|[0-9]{{2,}})' || ! "
                    "kill -0 $pid; do "
                    "sleep 0.01; done\n"
                    "sleep {}; kill -9 $pid; wait $pid; true",
                    train, seconds));
    int whole = 0;
    for (const std::string& name : names_in(bench / kDirectory)) {
      if (!is_step_directory(name)) continue;
      const model::SafetensorsDirectory saved(bench / kDirectory / name);
      CHECK(saved.entries().size() > 10);
      CHECK(fs::exists(bench / kDirectory / name / "tokenizer.json"));
      ++whole;
    }
    CHECK(whole >= 2);
  }
  const auto next = bench.finetune(train + "--overwrite --steps 3");
  REQUIRE_MESSAGE(next.code == 0, next.out << next.err);
  for (const std::string& name : names_in(bench / "out")) {
    CHECK_MESSAGE(!has(name, ".zeroth-"), name);
  }
}

TEST_CASE("saves that a full disk refuses leave nothing; the run goes on, and ends after three") {
  const Workbench bench;
  const MountedDisk disk(bench / "disk", "size=1200k");
  if (!disk.mounted()) return;
  bench.shell("head -c 900000 /dev/zero > disk/other");
  const auto result = bench.zeroth(
      2,
      fmt::format("{} --steps 50 --save-every 2 --output disk/out --timeout 30 --allow-small-disk",
                  kTrain));
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.out, "a checkpoint takes "), result.out);
  CHECK(has(result.out, "are free there; the run continues, and ends if 3 saves in a row fail"));
  CHECK(has(result.err, "rank 0: error: "));
  CHECK(has(result.err, "; 3 saves failed in a row"));
  CHECK_FALSE(has(result.out, "saving step 8"));
  for (const std::string& name : names_in(bench / "disk/out/checkpoints"))
    CHECK(name == ".owner-1");
}

TEST_CASE("a folder of checkpoints that vanishes is named, and ends the run after three saves") {
  const Workbench bench;
  const auto result = bench.shell(fmt::format(
      "CUDA_VISIBLE_DEVICES= \"$FINETUNE\" {} --use_cpu true --steps 100000 --save-every 5 "
      "--output out > said & "
      "pid=$!\nuntil grep -q 'saved out/checkpoints/step-10 ' said || ! kill -0 $pid; do sleep "
      "0.01; done\n"
      "rm -rf out/checkpoints; wait $pid",
      kTrain));
  CHECK(result.code == 1);
  CHECK_MESSAGE(
      has(result.err, "out/checkpoints has lost .owner-1: another process removes its files"),
      result.err);
  CHECK(has(result.err, "; 3 saves failed in a row"));
}

}  // namespace zeroth::trainer::checkpoint_manager_test
