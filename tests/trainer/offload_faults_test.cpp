// Real processes whose state rests in files: signals, kills, disks that are full or fill up.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "model/hf/safetensors.h"
#include "tests/trainer/disk.h"
#include "tests/trainer/offload_bench.h"

namespace zeroth::trainer::offload_faults_test {
namespace {

namespace fs = std::filesystem;

// Steps of about a hundred micro-batches: a signal meets one of them in its middle.
constexpr const char* kLongSteps =
    "--global-batch 400 --micro-batch 2 --steps 1000000 --output out ";
constexpr const char* kSaving =
    "--global-batch 4 --micro-batch 2 --steps 1000000 --save-every 5 --save-sync --output out "
    "--timeout 60 ";

bool freed(const fs::path& disk, uintmax_t bytes) {
  for (int tick = 0; tick < 500 && fs::space(disk).free < bytes; ++tick) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fs::space(disk).free == bytes;
}

// The newest model on the way is whole and can be evaluated.
void check_checkpoint(const OffloadBench& bench) {
  std::string newest;
  int64_t last = 0;
  for (const auto& entry : fs::directory_iterator(bench / "out/checkpoints")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("step-")) continue;
    CHECK_MESSAGE(name.find_first_not_of("0123456789", 5) == std::string::npos, name);
    const int64_t step = std::stoll(name.substr(5));
    if (step > last) newest = name;
    last = std::max(last, step);
  }
  REQUIRE(last >= 10);
  const auto again = bench.zeroth(
      1,
      fmt::format("--model out/checkpoints/{} --eval-only --data train.bin --seq-len 16", newest));
  CHECK_MESSAGE(again.code == 0, again.out << again.err);
}

// A run of which rank 1 gets `fault`, with $one its process and $file a way to the file of `kind`;
// stopped meanwhile. Checks that the run ends for all ranks, soon, and returns what it said.
std::string run_with_fault(const OffloadBench& bench, const std::string& kind,
                           const std::string& fault) {
  const auto start = std::chrono::steady_clock::now();
  const auto result =
      bench.while_running(kSaving, fmt::format("steps 12; one=$(rank 1); file=$(swap $one {})\n"
                                               "kill -STOP $one\n{}\nkill -CONT $one\n"
                                               "wait $job",
                                               kind, fault));
  INFO(result.out, result.err);
  CHECK(result.code == 1);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(45));
  CHECK(has(result.err, "finetune: rank 1: error: cannot "));
  CHECK(has(result.err, fmt::format("rank-1.{}.swap: ", kind)));
  CHECK(has(result.err, " bytes at offset "));
  CHECK(has(result.err, "finetune: rank 0: error: "));
  CHECK(has(result.err, "zeroth: rank 1 ended with exit code 1"));
  return result.err;
}

}  // namespace

TEST_CASE("SIGTERM in the middle of a step on NVMe saves the model and leaves no file there") {
  const OffloadBench bench;
  const auto result = bench.while_running(kLongSteps, "steps 1; kill -TERM $job; wait $job");
  INFO(result.out, result.err);
  CHECK(result.code == 143);
  CHECK(has(result.out, "interrupted by SIGTERM after step "));
  CHECK(model::SafetensorsDirectory(bench / "out").entries().size() > 10);
  CHECK(bench.is_clean());
}

TEST_CASE("kill -9 in the middle of a step leaves no byte on the disk, and no name after a start") {
  const OffloadBench bench;
  const MountedDisk disk(bench / "nvme", "size=8m");
  if (!disk.mounted()) return;
  const uintmax_t free = fs::space(bench / "nvme").free;
  const auto killed = bench.while_running(
      kLongSteps,
      "steps 1; stat -f -c %f nvme > left; kill -KILL $job $(rank 0) $(rank 1); wait $job");
  CHECK(killed.code == 137);
  CHECK(std::stoull(bench.read("left")) * 4096 < free - 500'000);  // it did rest there
  CHECK(freed(bench / "nvme", free));
  CHECK(bench.is_clean());
  // Of one that was killed right after it had made its file.
  fs::create_directory(bench / "nvme/zeroth-127.0.0.1-1");
  bench.write("nvme/zeroth-127.0.0.1-1/rank-0.optimizer.swap", "left over");
  const auto next = bench.zeroth(
      2, "--model model --data train.bin --seq-len 16 --deepspeed nvme.json --steps 1");
  CHECK_MESSAGE(next.code == 0, next.out << next.err);
  CHECK(has(next.out, "/nvme is held in memory (tmpfs)"));  // known when the file is there
  CHECK(bench.is_clean());
}

TEST_CASE("a disk too small for the files is refused before training, with both sizes") {
  const OffloadBench bench;
  const MountedDisk disk(bench / "nvme", "size=400k");
  if (!disk.mounted()) return;
  const auto result = bench.zeroth(
      2, "--model model --data train.bin --seq-len 16 --deepspeed nvme.json --steps 1");
  INFO(result.out, result.err);
  CHECK(result.code == 1);
  CHECK(has(result.err, "[0] finetune: error: the run needs "));
  CHECK(has(result.err, " in files in "));
  CHECK(has(result.err, "/nvme, but its disk has 400 KiB free"));
  CHECK_FALSE(has(result.out, "step 1"));
  CHECK(bench.is_clean());
}

TEST_CASE("a disk on which one rank's file cannot be made ends all ranks") {
  const OffloadBench bench;
  const MountedDisk disk(bench / "nvme", "size=8m,nr_inodes=4");
  if (!disk.mounted()) return;
  const auto result = bench.zeroth(
      2, "--model model --data train.bin --seq-len 16 --deepspeed nvme.json --steps 1");
  INFO(result.out, result.err);
  CHECK(result.code == 1);
  CHECK(has(result.err, "error: cannot create "));
  CHECK(has(result.err, ".swap: No space left on device"));
  CHECK(has(result.err, " ended with exit code 1"));  // by which the launcher ends the other
  CHECK_FALSE(has(result.out, "step 1"));
  CHECK(bench.is_clean());
}

TEST_CASE("a disk that is full in the middle of a run ends all ranks, the last model intact") {
  for (const std::string kind : {"optimizer", "parameters"}) {
    CAPTURE(kind);
    const OffloadBench bench;
    const MountedDisk disk(bench / "nvme", "size=8m");
    if (!disk.mounted()) return;
    // The reserved blocks are taken from the file: as where a file system reserves none.
    const auto said =
        run_with_fault(bench, kind,
                       "fallocate --punch-hole --offset 0 --length $(stat -L -c %s $file) $file\n"
                       "head -c 100000000 /dev/zero > nvme/filler 2> /dev/null");
    CHECK(has(said, "error: cannot write "));
    CHECK(has(said, ".swap: No space left on device"));
    fs::remove(bench / "nvme/filler");
    CHECK(bench.is_clean());
    check_checkpoint(bench);
  }
}

TEST_CASE("a file that is cut short in the middle of a run ends all ranks, the last model intact") {
  const OffloadBench bench;
  fs::create_directory(bench / "nvme");
  // Again and again: what is written behind the cut makes the file longer.
  const auto said = run_with_fault(
      bench, "optimizer", "(while kill -0 $one 2> /dev/null; do truncate -s 0 $file; done) &");
  CHECK(has(said, "error: cannot read "));
  CHECK(has(said, "the file ends there"));
  CHECK(bench.is_clean());
  check_checkpoint(bench);
}

}  // namespace zeroth::trainer::offload_faults_test
