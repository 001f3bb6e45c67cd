// Real processes: who else is at a run's output. Another run, or another user.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/second_user.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::two_runs_test {
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
      ": > second; before=$(ls -A)\n"
      "'{1}/zeroth' --num_gpus 2 finetune {0} --steps 1 --overwrite --metrics m.jsonl >> second "
      "2>&1\n"
      "echo code $?; ls; [ \"$(ls -A)\" = \"$before\" ] && echo nothing was added\n"
      "kill -TERM $pid; wait $pid",
      kRun, ZEROTH_BIN_DIR));
  CAPTURE(result.out);
  const std::string second = bench.read("second");
  CAPTURE(second);
  CHECK(result.code == 143);
  CHECK(has(result.out, "code 1\n"));
  CHECK(has(result.out, "out.zeroth-lock"));
  CHECK(has(result.out, "nothing was added\n"));
  const std::string holder = result.out.substr(0, result.out.find('\n'));
  CHECK(has(second,
            fmt::format("out is the output of a run that is still active ({}, since ", holder)));
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
  const auto next = bench.finetune(fmt::format("{}--steps 1", kRun));
  CHECK_MESSAGE(next.code == 0, next.err);
  CHECK(fs::exists(bench / "out/model.safetensors"));
  CHECK_FALSE(fs::exists(bench / "out.zeroth-lock"));
}

TEST_CASE("what another user puts beside an output in a shared folder redirects no file of a run" *
          in_neighbours) {
  const StickyFolder shared;
  const fs::path victim = shared.own("victim");
  write_text(victim / "diary.txt", "precious");
  const bool planted = as_nobody([&] {
    const auto link = [&](const std::string& name, const fs::path& to) {
      return ::symlink(to.c_str(), (shared / name).c_str()) == 0;
    };
    return link("out.zeroth-tmp-abcdef", victim) && link("out.zeroth-old-abcdef", victim) &&
           link("zeroth-swap", victim) && link("link", victim) &&
           link("locked.zeroth-lock", victim / "diary.txt");
  });
  if (!planted) return;
  const Workbench bench;
  const auto run = [&](const std::string& output, const std::string& more = "") {
    return bench.finetune(fmt::format(
        "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 --steps 2 "
        "--save-every 1 --output {} {}",
        (shared / output).string(), more));
  };
  const auto good = run("out");
  CHECK_MESSAGE(good.code == 0, good.err);
  CHECK(fs::exists(shared / "out/model.safetensors"));
  CHECK_FALSE(fs::exists(shared / "out/diary.txt"));
  for (const char* output : {"link", "link/deep", "locked"}) {
    CAPTURE(output);
    const bool is_read = std::string(output) != "locked";  // which is taken when ranks are there
    CHECK(run(output).code == (is_read ? 2 : 1));
  }
  CHECK(has(run("link").err, "link is a link of another user (uid 65534) and is not followed"));
  bench.write("ds.json", fmt::format(R"({{"zero_optimization": {{"offload_optimizer": {{
    "device": "nvme", "nvme_path": "{}"}}}}}})",
                                     (shared / "zeroth-swap").string()));
  const auto swapped = run("out", "--overwrite --deepspeed ds.json");
  CHECK(swapped.code == 2);
  CHECK(has(swapped.err, "zeroth-swap is a link of another user (uid 65534)"));
  CHECK(std::distance(fs::directory_iterator(victim), {}) == 1);
  CHECK(read_text(victim / "diary.txt") == "precious");
}

}  // namespace zeroth::trainer::two_runs_test
