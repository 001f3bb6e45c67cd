// Real processes: SIGTERM and SIGINT, to one rank or all, and memory that is not there.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>

#include "model/safetensors_folder.h"
#include "tests/trainer/free_port.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndless =
    "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 --steps 1000000 "
    "--metrics m.jsonl ";
// In a shell's background SIGINT is ignored.
constexpr const char* kDefault = "env --default-signal=INT,TERM";
constexpr const char* kUntilTraining =
    "until grep -q grad_norm m.jsonl 2> /dev/null || ! kill -0 $!; do sleep 0.02; done\n";

// Run, signalled while it trains; the last line of its output is the code.
Workbench::Result signalled(const Workbench& bench, const std::string& start,
                            const std::string& kill) {
  auto result =
      bench.shell(fmt::format("{} & pid=$!\n{}{}\nwait $pid", start, kUntilTraining, kill));
  return result;
}

void check_saved(const Workbench& bench, const Workbench::Result& result, const char* signal) {
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(has(result.out, fmt::format("interrupted by {} after step ", signal)));
  CHECK(has(result.out, "saved out in "));
  CHECK(model::SafetensorsFolder(bench / "out").entries().size() > 10);
  const auto rows = bench.rows("m.jsonl", "interrupted");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["interrupted"] == signal);
  CHECK(rows[0]["step"] == bench.steps("m.jsonl").back()["step"]);
}

}  // namespace

TEST_CASE("a signal to the launcher ends both ranks with the model saved once") {
  const Workbench bench;
  const auto result = signalled(bench,
                                fmt::format("{} '{}/zeroth' --num_gpus 2 finetune {} --output out",
                                            kDefault, ZEROTH_BIN_DIR, kEndless),
                                "kill -TERM $pid");
  CHECK(result.code == 143);
  check_saved(bench, result, "SIGTERM");
}

TEST_CASE(
    "SIGTERM or SIGINT to one rank alone ends all of them after their step, with the model saved") {
  struct Case {
    int hit;
    const char* signal;
    int code;
  };
  for (const auto& [hit, signal, code] : {Case{0, "INT", 130}, Case{1, "TERM", 143}}) {
    const Workbench bench;
    const std::string world =
        fmt::format("export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n",
                    free_port());
    const auto rank = [&](int number) {
      return fmt::format("RANK={0} LOCAL_RANK={0} {1} \"$FINETUNE\" {2} --output out & r{0}=$!\n",
                         number, kDefault, kEndless);
    };
    const auto result = bench.shell(
        world + rank(0) + rank(1) + kUntilTraining +
        fmt::format("kill -{} $r{}; wait $r0; a=$?; wait $r1; echo codes $a $?", signal, hit));
    CHECK(has(result.out, fmt::format("codes {0} {0}", code)));
    check_saved(bench, result, (std::string("SIG") + signal).c_str());
  }
}

TEST_CASE("without --output an interrupted run says that nothing is saved") {
  const Workbench bench;
  const auto result =
      signalled(bench, fmt::format("{} \"$FINETUNE\" {}", kDefault, kEndless), "kill -TERM $pid");
  CHECK(result.code == 143);
  CHECK(has(result.out, "; without --output nothing is saved"));
}

TEST_CASE("a second signal ends a run at once") {
  const Workbench bench;
  // A step that takes minutes: the first signal waits for its end.
  const auto result = bench.shell(
      fmt::format("{} \"$FINETUNE\" --model model --data train.bin --seq-len 16 --micro-batch 16 "
                  "--accumulation 100000 --steps 2 --output out > started & pid=$!\n"
                  "until grep -q optimizer started || ! kill -0 $pid; do sleep 0.02; done\n"
                  "sleep 0.3; kill -TERM $pid; sleep 0.3; kill -0 $pid && echo still there\n"
                  "kill -TERM $pid; wait $pid",
                  kDefault));
  CHECK(result.code == 143);
  CHECK(has(result.out, "still there"));
  CHECK_FALSE(fs::exists(bench / "out/config.json"));
}

}  // namespace zeroth::trainer
