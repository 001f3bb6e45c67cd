// Real processes: two runs that want the same output.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun =
    "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 --output out ";

}  // namespace

TEST_CASE("a second run into one output is refused by name, on all ranks, and harms nothing") {
  const Workbench bench;
  const auto result = bench.shell(fmt::format(
      "env --default-signal=TERM \"$FINETUNE\" {0} --steps 1000000 --metrics m.jsonl > first & "
      "pid=$!\n"
      "until grep -q grad_norm m.jsonl 2> /dev/null || ! kill -0 $pid; do sleep 0.02; done\n"
      "echo process $pid on $(hostname)\n"
      "'{1}/zeroth' --num_gpus 2 finetune {0} --steps 1 --overwrite --metrics m.jsonl > second "
      "2>&1\n"
      "echo code $?; ls\n"
      "kill -TERM $pid; wait $pid",
      kRun, ZEROTH_BIN_DIR));
  CAPTURE(result.out);
  const std::string second = bench.read("second");
  CAPTURE(second);
  CHECK(result.code == 143);
  CHECK(has(result.out, "code 1\n"));
  CHECK(has(result.out, "out.zeroth-lock"));
  const std::string holder = result.out.substr(0, result.out.find('\n'));
  CHECK(has(second, fmt::format("out is the output of a run that goes on ({}, since ", holder)));
  CHECK(bench.steps("m.jsonl").size() > 1);
  CHECK(has(bench.read("first"), "saved out in "));
  CHECK_FALSE(fs::exists(bench / "out.zeroth-lock"));
}

TEST_CASE("a run that was killed refuses no other, and its lock goes with the next") {
  const Workbench bench;
  const auto killed = bench.shell(fmt::format(
      "\"$FINETUNE\" {} --steps 1000000 --metrics m.jsonl > first & pid=$!\n"
      "until grep -q grad_norm m.jsonl 2> /dev/null || ! kill -0 $pid; do sleep 0.02; done\n"
      "kill -KILL $pid; wait $pid",
      kRun));
  CHECK(killed.code == 137);
  CHECK(fs::exists(bench / "out.zeroth-lock"));
  const auto next = bench.finetune(std::string(kRun) + "--steps 1");
  CHECK_MESSAGE(next.code == 0, next.err);
  CHECK(fs::exists(bench / "out/model.safetensors"));
  CHECK_FALSE(fs::exists(bench / "out.zeroth-lock"));
}

}  // namespace zeroth::trainer
