// Ranks that are stopped, or end, in the middle of a run: real processes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

constexpr const char* kArguments =
    "--model model --data train.bin --seq-len 16 --steps 1000000 --global-batch 2 --micro-batch 1 "
    "--deepspeed sharded.json";

// Two ranks without a launcher; rank 1 gets `signal` when steps are being made. `hosts`: the ranks
// believe that they are on so many. Returns what rank 0 says, and its exit code.
Workbench::Result signal_rank_1(const Workbench& bench, const std::string& signal, int hosts = 1) {
  bench.write("sharded.json", R"({"zero_optimization":
      {"stage": 3, "stage3_param_persistence_threshold": 0}})");
  return bench.shell(
      fmt::format("export WORLD_SIZE=2 LOCAL_SIZE={} MASTER_PORT={}\n"
                  "RANK=1 LOCAL_RANK=1 \"$FINETUNE\" {} --timeout 2 > one 2>&1 & one=$!\n"
                  "RANK=0 LOCAL_RANK=0 \"$FINETUNE\" {} --timeout 2 > zero & zero=$!\n"
                  "while ! grep -q 'step 3' zero && kill -0 $zero; do sleep 0.05; done\n"
                  "kill -{} $one\n"
                  "wait $zero; code=$?\n"
                  "kill -KILL $one; exit $code",
                  2 / hosts, free_port(), kArguments, kArguments, signal));
}

}  // namespace

TEST_CASE("a rank that is stopped is named when the time limit has passed, with what it did last") {
  const Workbench bench;
  const auto result = signal_rank_1(bench, "STOP");
  CHECK(result.code == 1);
  CAPTURE(result.err);
  CHECK(has(result.err, "finetune: rank 0: error: rank 0 of 2: "));
  CHECK(has(result.err, "failed: waited 2"));  // and some hundredths on a busy machine
  CHECK(has(result.err,
            " s, the time limit (--timeout, DEEPSPEED_TIMEOUT); rank 0 arrived; missing: rank 1 "
            "(process "));
  CHECK(has(result.err, ", stopped) last "));
}

TEST_CASE("a rank that is killed is known to be gone long before the time limit") {
  const Workbench bench;
  const auto result = signal_rank_1(bench, "KILL");
  CHECK(result.code == 1);
  CAPTURE(result.err);
  CHECK(has(result.err, "failed: rank 1 is gone; rank 0 arrived; missing: rank 1 (process "));
  CHECK(has(result.err, ", has ended) last "));
}

TEST_CASE("over TCP a rank that is stopped ends the run within the time limit, too") {
  const Workbench bench;
  const auto result = signal_rank_1(bench, "STOP", /*hosts=*/2);
  CHECK(result.code == 1);
  CAPTURE(result.err);
  CHECK(has(result.err, "finetune: rank 0: error: rank 0 of 2: "));
  CHECK(has(result.err, "over 'data' failed: "));
}

TEST_CASE("the launcher ends what is left when a rank is stopped, in the time that it was given") {
  const Workbench bench;
  const auto result =
      bench.shell(fmt::format("'{}/zeroth' --timeout 2 --num_gpus 2 finetune {} > out & job=$!\n"
                              "while ! grep -q 'step 3' out && kill -0 $job; do sleep 0.05; done\n"
                              "for rank in $(cat /proc/$job/task/*/children); do\n"
                              "  if tr '\\0' '\\n' < /proc/$rank/environ | grep -qx RANK=1; then "
                              "kill -STOP $rank; one=$rank; "
                              "fi\n"
                              "done\n"
                              "wait $job; code=$?\n"
                              "kill -0 $one && echo it lives\n"
                              "exit $code",
                              ZEROTH_BIN_DIR,
                              "--model model --data train.bin --seq-len 16 --steps 1000000 "
                              "--global-batch 2 --micro-batch 1"));
  CAPTURE(result.err);
  CHECK(result.code != 0);
  CHECK(has(result.err, "missing: rank 1 (process "));
  CHECK(has(result.err, ", stopped) last "));
  CHECK_FALSE(has(result.out, "it lives"));
}

}  // namespace zeroth::trainer
