#include "trainer/checkpoints.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "model/safetensors_folder.h"
#include "tests/support/ranks.h"
#include "tests/trainer/disk.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 ";

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

TEST_CASE("folders on the way are told by their name") {
  CHECK(is_step_folder("step-10"));
  CHECK_FALSE(is_step_folder("step-"));
  CHECK_FALSE(is_step_folder("step-1a"));
  CHECK_FALSE(is_step_folder("my-step-10"));
}

TEST_CASE("what is odd about an output is told before training") {
  const Workbench bench;
  const auto said = [&](const std::string& more) {
    const auto result =
        bench.finetune(fmt::format("{} --steps 1 --overwrite --output disk/out {}", kTrain, more));
    CHECK_MESSAGE(result.code == 0, result.out << result.err);
    return result.out;
  };
  fs::create_directories(bench / "disk/out/step-7");
  const std::string out = said("");
  CHECK(has(out, "warning    disk/out/step-7 is of an earlier run and stays"));
  CHECK_FALSE(has(out, "are free there"));
  const Disk disk(bench / "disk", "size=400k");
  if (!disk.mounted()) return;
  const auto small =
      bench.finetune(fmt::format("{} --steps 1 --save-every 5 --output disk/out", kTrain));
  CHECK(has(small.out, "warning    --output disk/out: "));
  CHECK(has(small.out, "will be written and "));
}

TEST_CASE("an output that another run holds is refused on all ranks, and locked by rank 0 alone") {
  const TempFolder folder;
  RunPlan plan;
  plan.flags.output = (folder / "out").string();
  const std::string said = plan.flags.output + " is the output of a run that goes on (process ";
  {
    const model::OutputLock first(plan.flags.output);
    testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
      const std::string heard = message_of<Error>([&] { lock_output(plan, *mesh); });
      CHECK(heard.starts_with(mesh->rank() == 0 ? said : "rank 0 failed: " + said));
    });
  }
  testing::run_ranks(2, [&](std::shared_ptr<comm::Mesh> mesh) {
    const auto lock = lock_output(plan, *mesh);
    CHECK((lock != nullptr) == (mesh->rank() == 0));
  });
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("every so many steps a model is saved, of which the newest two stay") {
  const Workbench bench;
  const auto result = bench.zeroth(
      2, fmt::format("{} --steps 9 --save-every 2 --save-dtype bf16 --output out", kTrain));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(has(result.out, "saved out/step-4 in "));
  CHECK(has(result.out, ": weights, not the state of the optimizer yet"));
  const auto names = names_in(bench / "out");
  CHECK_FALSE(names.contains("step-4"));
  for (const char* name : {"step-6", "step-8", "config.json", "model.safetensors"}) {
    CHECK_MESSAGE(names.contains(name), name);
  }
  const auto config = nlohmann::json::parse(bench.read("out/step-8/config.json"));
  CHECK(config["torch_dtype"] == "bfloat16");
  const model::SafetensorsFolder saved(bench / "out/step-6");
  CHECK(saved.entries().begin()->second.tensor->dtype == "BF16");
  const auto again = bench.zeroth(1, "--model out/step-8 --eval-only --data train.bin");
  CHECK_MESSAGE(again.code == 0, again.out << again.err);
}

TEST_CASE("a run that is killed while it saves leaves whole models only, and the next clears up") {
  const Workbench bench;
  const std::string train = fmt::format("{} --save-every 1 --output out ", kTrain);
  for (const char* seconds : {"0.00", "0.05", "0.11"}) {
    bench.shell(
        // Each folder is gone two steps later, so a busy shell may miss any one of them.
        fmt::format(
            "rm -rf out*; \"$FINETUNE\" {} --steps 100000 & pid=$!\n"
            "until ls out 2>&1 | grep -Eqx 'step-([3-9]|[0-9]{{2,}})' || ! kill -0 $pid; do "
            "sleep 0.01; done\n"
            "sleep {}; kill -9 $pid; wait $pid; true",
            train, seconds));
    int whole = 0;
    for (const std::string& name : names_in(bench / "out")) {
      if (!is_step_folder(name)) continue;
      const model::SafetensorsFolder saved(bench / "out" / name);
      CHECK(saved.entries().size() > 10);
      CHECK(fs::exists(bench / "out" / name / "tokenizer.json"));
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

TEST_CASE("a disk that fills up while a model is saved is an error on all ranks, without a wait") {
  const Workbench bench;
  const Disk disk(bench / "disk", "size=400k");
  if (!disk.mounted()) return;
  const auto result = bench.zeroth(
      2, fmt::format("{} --steps 50 --save-every 1 --output disk/out --timeout 30", kTrain));
  CHECK(result.code == 1);
  CHECK(has(result.err, "No space left on device"));
  CHECK(has(result.err, " bytes are free there"));
  CHECK(has(result.err, "disk/out/step-"));
  CHECK(has(result.err, "rank 0: error: "));
  CHECK(has(result.err, "rank 1: error: rank 0 failed: "));
  int whole = 0;
  for (const std::string& name : names_in(bench / "disk/out")) {
    CHECK_MESSAGE((is_step_folder(name) || name == "train_log.html"), name);
    if (is_step_folder(name)) {
      CHECK(model::SafetensorsFolder(bench / "disk/out" / name).entries().size() > 10);
      ++whole;
    }
  }
  CHECK(whole >= 1);
}

TEST_CASE("an output on a read-only disk is refused before training") {
  const Workbench bench;
  const Disk disk(bench / "disk", "size=400k");
  if (!disk.mounted()) return;
  disk.make_read_only();
  const auto result = bench.zeroth(2, fmt::format("{} --output disk/out", kTrain));
  CHECK(result.code == 1);
  CHECK(has(result.err, "disk/out cannot be made: no folder can be made in "));
  CHECK(has(result.err, "disk: Read-only file system"));
  CHECK_FALSE(has(result.out, "step 1"));
}

}  // namespace zeroth::trainer
