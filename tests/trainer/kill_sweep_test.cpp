// The real program is killed at each of the calls that decide what stands on the disk.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "checkpoint/find.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::kill_sweep_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 3;
constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 12 --lr 1e-2 --save-every 1 "
    "--save-sync --metrics m.jsonl --output out ";

std::string killing(const std::string& setting) {
  return fmt::format("LD_PRELOAD={}/tests/libkill_at_call.so {}", ZEROTH_BIN_DIR, setting);
}

// All checkpoints that can be found are.
void check_whole(const Workbench& bench) {
  const auto place = checkpoint::locate(bench / "out");
  if (!place.file_system) return;
  for (const auto& one : checkpoint::list_checkpoints(*place.file_system)) {
    CHECK_MESSAGE(one.complete(), one.fault);
  }
}

// That a run says it goes on behind; 0: it began anew.
int64_t resumed_step(const std::string& out) {
  const std::string mark = " after step ";
  const size_t at = out.find(mark);
  return at == out.npos ? 0 : std::stoll(out.substr(at + mark.size()));
}

void start_anew(const Workbench& bench) {
  fs::remove_all(bench / "out");
  fs::remove(bench / "m.jsonl");
}

}  // namespace

TEST_CASE(
    "wherever a run is killed, its newest checkpoint is whole, and it ends as if it was not") {
  const Workbench bench;
  const std::string train = fmt::format("{} --steps {} ", kTrain, kSteps);
  REQUIRE(bench.finetune(train, killing("KILL_COUNT=count")).code == 0);
  const std::string weights = bench.read("out/model.safetensors");
  const auto whole = losses(bench.steps("m.jsonl"));
  const int64_t calls = std::stoll(bench.read("count"));
  REQUIRE(calls > 30);
  const int64_t stride = std::getenv("ZEROTH_TEST_FULL") != nullptr ? 1 : 5;
  int64_t kills = 0;
  for (int64_t call = 1; call <= calls; call += stride) {
    CAPTURE(call);
    start_anew(bench);
    const auto killed = bench.finetune(train, killing(fmt::format("KILL_AT={}", call)));
    if (killed.code == 0) continue;  // the count includes what comes in another order
    ++kills;
    const auto taken = static_cast<int64_t>(bench.steps("m.jsonl").size());
    check_whole(bench);
    const auto again = bench.finetune(train + "--resume auto");
    REQUIRE_MESSAGE(again.code == 0, again.err);
    CHECK((bench.read("out/model.safetensors") == weights));
    CHECK(losses(bench.steps("m.jsonl")) == whole);
    // What was put aside while the model took its place is there again, and one save at most is
    // lost.
    const int64_t resumed = resumed_step(again.out);
    CHECK(resumed >= taken - 1);
    if (resumed == kSteps) continue;  // nothing was left to be saved
    for (const auto& entry : fs::directory_iterator(bench / "out/checkpoints")) {
      const std::string name = entry.path().filename();
      CHECK_MESSAGE((!name.starts_with('.') || name.starts_with(".owner-")), name);
    }
  }
  CHECK(kills > 5);
  MESSAGE(calls << " calls, " << kills << " kills");
}

}  // namespace zeroth::trainer::kill_sweep_test
