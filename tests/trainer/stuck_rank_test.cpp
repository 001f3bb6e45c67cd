// Ranks that are stopped, or end, in the middle of a run: real processes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/waited.h"
#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::stuck_rank_test {
namespace {

constexpr const char* kEndless =
    "--model model --data train.bin --seq-len 16 --steps 1000000 --global-batch 2 --micro-batch 1 ";

constexpr double kTimeout = 6;  // seconds in which both have to start, too

struct Ranks {
  int hosts = 1;  // the ranks believe that they are on so many
  const char* before = "";
  const char* to = "";  // where rank 0's errors go
};

// A pipe that is full and that nobody reads.
constexpr Ranks kUnread = {.before =
                               "mkfifo pipe; exec 9<>pipe\n"
                               "dd if=/dev/zero of=pipe bs=4096 oflag=nonblock 2> filled\n",
                           .to = "2> pipe"};

// Two ranks without a launcher; rank 1 gets `signal` when steps are being made. Returns what rank 0
// says, and its exit code.
Workbench::Result signal_rank_1(const Workbench& bench, const std::string& signal,
                                const Ranks& ranks = {}) {
  bench.write("sharded.json", R"({"zero_optimization":
      {"stage": 3, "stage3_param_persistence_threshold": 0}})");
  return bench.shell(
      fmt::format("{0}export WORLD_SIZE=2 LOCAL_SIZE={1} MASTER_PORT={2}\n"
                  "arguments='{3} --deepspeed sharded.json --timeout {4}'\n"
                  "RANK=1 LOCAL_RANK={7} {8} \"$FINETUNE\" $arguments > one 2>&1 & one=$!\n"
                  "RANK=0 LOCAL_RANK=0 \"$FINETUNE\" $arguments > zero {5} & zero=$!\n"
                  "while ! grep -q 'step 3' zero && kill -0 $zero; do sleep 0.05; done\n"
                  "kill -{6} $one\n"
                  "wait $zero; code=$?\n"
                  "kill -KILL $one; exit $code",
                  ranks.before, 2 / ranks.hosts, free_port(), kEndless, kTimeout, ranks.to, signal,
                  2 - ranks.hosts, ranks.hosts == 1 ? "" : "ZEROTH_HOST_ID=another"));
}

}  // namespace

TEST_CASE("a rank that is stopped is named when the time limit has passed, with what it did last") {
  const Workbench bench;
  const auto result = signal_rank_1(bench, "STOP");
  CHECK(result.code == 1);
  CAPTURE(result.err);
  CHECK(has(result.err, "finetune: rank 0: error: rank 0 of 2: "));
  CHECK(testing::seconds_waited(result.err) >= kTimeout);
  CHECK(has(result.err,
            " s (--timeout, DEEPSPEED_TIMEOUT); rank 0 arrived; missing: rank 1 "
            "(process "));
  CHECK(has(result.err, ", stopped) last "));
}

TEST_CASE("a rank that gives up ends also where nobody reads its last words") {
  const Workbench bench;
  CHECK(signal_rank_1(bench, "STOP", kUnread).code == 1);
  CHECK(has(bench.read("filled"), "Resource temporarily unavailable"));
}

TEST_CASE("a rank that is killed is known to be gone long before the time limit") {
  const Workbench bench;
  const auto result = signal_rank_1(bench, "KILL");
  CHECK(result.code == 1);
  CAPTURE(result.err);
  CHECK(has(result.err, "failed: rank 1 is gone; rank 0 arrived; missing: rank 1 (process "));
  CHECK(has(result.err, ", has ended) last "));
}

TEST_CASE("a rank that shares layers with others is named with their axis, and nobody waits on") {
  for (const char* signal : {"STOP", "KILL"}) {
    const Workbench bench;
    bench.write("shared.json", R"({"tensor_parallel": {"autotp_size": 2}})");
    const auto result = bench.shell(fmt::format(
        "export WORLD_SIZE=4 LOCAL_SIZE=4 MASTER_PORT={0}\n"
        "for rank in 3 2 1 0; do\n"
        "  RANK=$rank LOCAL_RANK=$rank \"$FINETUNE\" {3} --deepspeed shared.json --timeout {1} "
        "> $rank 2> errors$rank & eval ids$rank=$!\n"
        "done\n"
        "while ! grep -q 'step 3' 0 2> /dev/null && kill -0 $ids0; do sleep 0.05; done\n"
        "kill -{2} $ids3\n"
        "wait $ids2; code=$?; wait $ids0 $ids1\n"
        "kill -KILL $ids3; cat errors2 >&2; exit $code",
        free_port(), 2 * kTimeout, signal, kEndless));
    CHECK(result.code == 1);
    CAPTURE(result.err);
    CHECK(has(result.err, "finetune: rank 2: error: rank 2"));
    CHECK(has(result.err, "rank 3 (process "));
    // In a layer it is the axis; at the end of a step, or with data ranks, what they wait in then.
    CHECK((has(result.err, "over 'tensor' (ranks 2, 3) failed: ") ||
           has(result.err, "over 'data' (ranks 0, 2) failed: ") ||
           has(result.err, "over 'world' ")));
  }
}

TEST_CASE("over TCP a rank that is stopped ends the run within the time limit, too, and is named") {
  const Workbench bench;
  const auto result = signal_rank_1(bench, "STOP", {.hosts = 2});
  CHECK(result.code == 1);
  CAPTURE(result.err);
  CHECK(has(result.err, "finetune: rank 0: error: rank 0: "));
  CHECK(has(result.err, "over 'world across machines' (ranks 0, 1) failed: "));
  CHECK(has(result.err, "; rank 1 on another reports nothing"));
}

TEST_CASE("the launcher ends what is left when a rank is stopped, in the time that it was given") {
  const Workbench bench;
  const auto result =
      bench.shell(fmt::format("'{}/zeroth' --timeout 6 --num_gpus 2 finetune {} > out & job=$!\n"
                              "while ! grep -q 'step 3' out && kill -0 $job; do sleep 0.05; done\n"
                              "for rank in $(cat /proc/$job/task/*/children); do\n"
                              "  if tr '\\0' '\\n' < /proc/$rank/environ | grep -qx RANK=1; then "
                              "kill -STOP $rank; one=$rank; "
                              "fi\n"
                              "done\n"
                              "wait $job; code=$?\n"
                              "kill -0 $one && echo it lives\n"
                              "exit $code",
                              ZEROTH_BIN_DIR, kEndless));
  CAPTURE(result.err);
  CHECK(result.code != 0);
  CHECK(has(result.err, "missing: rank 1 (process "));
  CHECK(has(result.err, ", stopped) last "));
  CHECK_FALSE(has(result.out, "it lives"));
}

TEST_CASE("a job that is suspended for longer than its time limit goes on as if nothing had been") {
  const Workbench bench;
  const auto result = bench.shell(fmt::format(
      "'{}/zeroth' --timeout 6 --num_gpus 2 finetune {} >out & job=$!\n"
      "while ! grep -q 'step 5/' out && kill -0 $job; do sleep 0.05; done\n"
      "all=\"$(cat /proc/$job/task/*/children) $job\"\n"
      "kill -STOP $all; sleep 9; lines=$(grep -c step out); kill -CONT $all\n"
      "while [ $(grep -c step out) -lt $((lines + 3)) ] && kill -0 $job; do sleep 0.1; done\n"
      "kill -TERM $job; wait $job",
      ZEROTH_BIN_DIR, kEndless));
  CAPTURE(result.err);
  CHECK(result.code == 143);
  CHECK_FALSE(has(result.err, "timed out"));
  CHECK_FALSE(has(result.err, "SIGSTOP"));
  CHECK_FALSE(has(result.err, "were killed"));
}

}  // namespace zeroth::trainer::stuck_rank_test
