#include "trainer/output.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <new>
#include <regex>
#include <set>

#include "base/error.h"
#include "checkpoint/owner.h"
#include "checkpoint/posix_file_system.h"
#include "comm/cpu_collectives.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/support/ranks.h"
#include "tests/trainer/disk.h"
#include "tests/trainer/names_in.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::output_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 4 --micro-batch 2 ";

std::vector<model::PlannedTensor> parameters_of(const model::ModelSpec& spec) {
  std::vector<model::PlannedTensor> infos;
  for (const auto& block : model::build_blocks(spec)) {
    for (const auto& item : block->named_parameters()) {
      infos.push_back({block->label() + "." + item.key(), item.value().sizes().vec()});
    }
  }
  return infos;
}

// The outcome on the only rank.
std::optional<std::string> finish(HfModelSink& output) {
  std::optional<std::string> failure;
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    failure = output.finish(mesh->cpu_group());
  });
  return failure;
}

}  // namespace

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
  CHECK(has(out, "warning    disk/out/step-7 belongs to an earlier run and is kept"));
  CHECK_FALSE(has(out, "are free there"));
  const MountedDisk disk(bench / "disk", "size=400k");
  if (!disk.mounted()) return;
  const std::string small = fmt::format("{} --steps 16 --save-every 5 --output disk/out ", kTrain);
  const auto refused = bench.finetune(small);
  CHECK(refused.code == 2);
  CHECK(has(refused.err, "--output disk/out: "));
  CHECK(has(refused.err, " will be written (the model "));
  CHECK(has(refused.err,
            "are free there. Free some space, keep fewer checkpoints (--save_total_limit 1), or "
            "start with --allow-small-disk"));
  CHECK_FALSE(has(refused.out, "step 1/"));
  const auto allowed = bench.finetune(small + "--allow-small-disk --save_total_limit 1");
  CHECK(has(allowed.out, "warning    --output disk/out: "));
  CHECK(has(allowed.out, "step 1/"));
}

TEST_CASE("full_disk: the model waits in memory until there is room, or a signal comes") {
  const Workbench bench;
  const MountedDisk disk(bench / "disk", "size=60k");
  if (!disk.mounted()) return;
  const auto run = [&](const std::string& then) {
    return bench.shell(fmt::format(
        "'{}/zeroth' --num_gpus 2 finetune {} --steps 2 --output disk/out --allow-small-disk >out "
        "2>&1 & job=$!\nuntil grep -q 'waits in memory' out || ! kill -0 $job; do sleep 0.1; done\n"
        "{}\nwait $job",
        ZEROTH_BIN_DIR, kTrain, then));
  };
  const auto interrupted = run("kill -TERM $job");
  CHECK(interrupted.code == 128 + SIGTERM);
  const std::string said = bench.read("out");
  CHECK(has(said, "No space left on device"));
  CHECK(has(said, "the model waits in memory until there is space: it needs "));
  CHECK(has(said, " in disk/out, where "));
  CHECK(has(said, "the model is not saved: out of disk space"));
  CHECK_FALSE(fs::exists(bench / "disk/out/model.safetensors"));
  fs::remove_all(bench / "disk/out");
  const auto saved = run("mount -o remount,size=20m disk");
  CHECK_MESSAGE(saved.code == 0, bench.read("out"));
  CHECK(fs::exists(bench / "disk/out/model.safetensors"));
  CHECK(fs::exists(bench / "disk/out/trainer_state.json"));
}

TEST_CASE("full_disk: the checkpoint of the last step is counted, and named where it is left out") {
  const Workbench bench;
  REQUIRE(bench.finetune(fmt::format("{} --steps 1 --output whole", kTrain)).code == 0);
  const auto model_kib = fs::file_size(bench / "whole/model.safetensors") / 1024;
  const std::string size = fmt::format("size={}k", 2 * model_kib + 64);
  const MountedDisk disk(bench / "disk", size.c_str());
  if (!disk.mounted()) return;
  const std::string run = fmt::format("{} --steps 2 --save-every 100 --output disk/out ", kTrain);
  const auto refused = bench.finetune(run);
  CHECK(refused.code == 2);
  CHECK(has(refused.err, ", checkpoints "));
  const auto allowed = bench.finetune(run + "--allow-small-disk");
  CHECK_MESSAGE(allowed.code == 0, allowed.err);
  CHECK(has(allowed.out, "; the model is saved, but no run can resume from step 2"));
  CHECK_FALSE(has(allowed.out, "the run continues, and ends"));
  CHECK(fs::exists(bench / "disk/out/model.safetensors"));
}

TEST_CASE("full_disk: a limit on the size of files is found before the first step") {
  const Workbench bench;
  const auto run = [&](int blocks, const std::string& more) {
    return bench.shell(fmt::format("ulimit -f {}; exec '{}/finetune' {} --steps 1 --output out {}",
                                   blocks, ZEROTH_BIN_DIR, kTrain, more));
  };
  const auto refused = run(8, "--allow-small-disk");  // blocks of 512 bytes
  CHECK(refused.code == 2);
  CHECK_MESSAGE(has(refused.err, "no process may write more than 4.00 KiB (ulimit -f)"),
                refused.err);
  CHECK_FALSE(has(refused.out, "step 1/"));
}

TEST_CASE("a run that begins anew names the checkpoints of an earlier one that stay") {
  const Workbench bench;
  const auto run = [&](const std::string& more) {
    return bench.finetune(fmt::format("{} --output out {}", kTrain, more)).out;
  };
  CHECK_FALSE(has(run("--steps 2 --save-every 1"), "to an earlier run"));
  CHECK(has(
      run("--steps 1 --overwrite"),
      "warning    out/checkpoints/step-2 belongs to an earlier run: --resume would resume from it "
      "until this run has saved a checkpoint; rm -r out/checkpoints removes all 2 there"));
  CHECK_FALSE(has(run("--steps 3 --resume"), "to an earlier run"));
}

TEST_CASE("full_disk: what cannot be written is found before ranks connect") {
  const Workbench bench;
  const auto refused = [&](const std::string& more) {
    // The other rank never comes.
    const auto result = bench.finetune(fmt::format("{} --steps 1 {}", kTrain, more),
                                       "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 "
                                       "MASTER_PORT=29999");
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(has(refused("--metrics no/such/m.jsonl"),
            "--metrics no/such/m.jsonl: cannot be written: No such file or directory"));
  // But a folder above the output is made.
  CHECK(bench.finetune(fmt::format("{} --steps 1 --output new/out --metrics new/m.jsonl", kTrain))
            .code == 0);
  fs::create_directory(bench / "folder");
  CHECK(has(refused("--metrics folder"), "--metrics folder: cannot be written: Is a directory"));
  const MountedDisk disk(bench / "disk", "size=20m");
  if (!disk.mounted()) return;
  fs::create_directories(bench / "disk/out/checkpoints");
  disk.make_read_only();
  CHECK(has(refused("--metrics disk/m.jsonl"), "cannot be written: Read-only file system"));
  CHECK(has(refused("--overwrite --output disk/out"), "Read-only file system"));
}

TEST_CASE("full_disk: a read-only model's folder gives no read-only files in the output") {
  const Workbench bench;
  for (const auto& entry : fs::directory_iterator(bench / "model")) {
    fs::permissions(entry, fs::perms::owner_read | fs::perms::group_read);
  }
  REQUIRE(bench.finetune(fmt::format("{} --steps 2 --save-every 1 --output out", kTrain)).code ==
          0);
  for (const auto& entry : fs::recursive_directory_iterator(bench / "out")) {
    CHECK_MESSAGE((entry.status().permissions() & fs::perms::owner_write) != fs::perms::none,
                  entry.path());
  }
}

TEST_CASE("an output that another run holds is refused on all ranks, and locked by rank 0 alone") {
  const TempFolder directory;
  RunPlan plan;
  plan.flags.output = (directory / "out").string();
  const std::string said =
      plan.flags.output + " is the output of a run that is still active (process ";
  {
    const OutputLock first(plan.flags.output);
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const std::string heard = message_of<Error>([&] { lock_output(plan, *mesh); });
      CHECK(heard.starts_with(mesh->rank() == 0 ? said : "rank 0 failed: " + said));
    });
  }
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto lock = lock_output(plan, *mesh);
    CHECK((lock != nullptr) == (mesh->rank() == 0));
  });
  CHECK(names_in(directory.path()).empty());
}

TEST_CASE("an output that another machine does not see is refused before training") {
  const TempFolder directory;
  const auto run = [&](const char* output_of_rank_1, bool saves) {
    testing::run_ranks(
        2,
        [&](std::shared_ptr<comm::DeviceMesh> mesh) {
          RunPlan plan;
          plan.flags.output = directory / (mesh->rank() == 0 ? "a/out" : output_of_rank_1);
          if (saves) plan.flags.intervals.save = {Interval::Mode::kSteps, 10};
          const std::string heard = message_of<Error>([&] { lock_output(plan, *mesh); });
          if (!saves || std::string(output_of_rank_1) == "a/out") {
            CHECK(heard == "no exception");
          } else {
            CHECK(has(heard, plan.flags.output + ": rank 1 (host "));
            CHECK(has(heard, ") does not see what rank 0 writes there: checkpoints need a folder"));
          }
        },
        {.nodes = {"one", "two"}});
    for (const auto& entry : fs::recursive_directory_iterator(directory.path()))
      CHECK_MESSAGE(entry.is_directory(), entry.path().string());
  };
  run("a/out", true);
  run("b/out", true);
  run("b/out", false);
}

TEST_CASE(
    "the next round takes the checkpoints over with the output: the one before commits none") {
  const TempFolder directory;
  RunPlan plan;
  plan.flags.output = (directory / "out").string();
  plan.attempt.index = 1;
  plan.attempt.resumes = true;
  plan.attempt.run = "0123456789abcdef";
  const std::shared_ptr<checkpoint::FileSystem> file_system =
      checkpoint::PosixFileSystem::make(directory / "out/checkpoints");
  const checkpoint::Owner before = checkpoint::Owner::claim(file_system, "the round before");
  file_system->create_directory(".tmp-step-8.1.1");
  testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto lock = lock_output(plan, *mesh);
    CHECK((lock != nullptr) == (mesh->rank() == 0));
  });
  CHECK_THROWS_AS(before.check(), Error);
}

TEST_CASE("an output on a read-only disk is refused before training") {
  const Workbench bench;
  const MountedDisk disk(bench / "disk", "size=400k");
  if (!disk.mounted()) return;
  disk.make_read_only();
  const auto result = bench.zeroth(2, fmt::format("{} --output disk/out", kTrain));
  CHECK(result.code == 2);
  CHECK(has(result.err, "disk/out cannot be created: cannot create a folder in "));
  CHECK(has(result.err, "disk: Read-only file system"));
  CHECK_FALSE(has(result.out, "step 1"));
}

TEST_CASE("what the engine hands over becomes a folder that is read again") {
  const Workbench bench;
  const fs::path out = bench / "out";
  const auto spec = model::read_model_spec(bench / "model");
  const auto infos = parameters_of(spec);
  HfModelSink output({.source = bench / "model", .output = out, .spec = spec}, std::nullopt);
  output.begin(infos, torch::kFloat32);
  for (const auto& info : infos) output.write(info.name, torch::full(info.shape, 0.25));
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(finish(output));
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK_MESSAGE(fs::exists(out / file), file);
  }
  const auto saved = model::open_weights(out, spec, 1);
  for (const auto& info : infos) {
    saved->check(info.name, info.shape);
    const torch::Tensor values = torch::zeros({4});
    saved->read({info.name, TensorSlice::full(info.shape), 2}, values);
    CHECK_MESSAGE((values == 0.25).all().item<bool>(), info.name);
  }
}

TEST_CASE("a rank that is not asked writes nothing") {
  const Workbench bench;
  HfModelSink output({.source = "", .output = bench / "out", .spec = {}}, std::nullopt);
  CHECK_FALSE(finish(output));
  CHECK_FALSE(fs::exists(bench / "out"));
}

TEST_CASE("ranks that join write one model, and who cannot write is named") {
  const Workbench bench;
  const auto spec = model::read_model_spec(bench / "model");
  const auto infos = parameters_of(spec);
  for (const bool fails : {false, true}) {
    const fs::path out = bench / (fails ? "bad" : "good");
    testing::run_ranks(2, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      HfModelSink output({.source = bench / "model", .output = out, .spec = spec}, torch::kHalf);
      comm::Group& group = mesh->cpu_group();
      const bool first = mesh->rank() == 0;
      if (first) output.begin(infos, torch::kFloat32);
      const std::string place =
          comm::all_gather_strings(first ? output.directory() : "", "place", group).front();
      if (!first) {
        CHECK_FALSE(output.join(bench / "elsewhere", infos, torch::kFloat32));
        CHECK(output.join(place, infos, torch::kFloat32));
      }
      for (size_t i = 0; i < infos.size(); ++i) {
        if ((i % 2 == 0) != first) continue;
        const double value = first || !fails ? 0.25 : 1e6;
        output.write(infos[i].name, torch::full(infos[i].shape, value));
      }
      const auto failure = output.finish(group);
      CHECK(failure.has_value() == fails);
      if (first && fails) {
        CHECK(has(*failure, "rank 1: "));
        CHECK(has(*failure, "has a value of 1e+06, beyond the 65504 that fp16 holds"));
      }
    });
    CHECK(fs::exists(out) == !fails);
  }
  const auto saved = model::open_weights(bench / "good", spec, 1);
  for (const auto& info : infos) {
    const torch::Tensor values = torch::zeros({4});
    saved->read({info.name, TensorSlice::full(info.shape), 2}, values);
    CHECK_MESSAGE((values == 0.25).all().item<bool>(), info.name);
  }
}

TEST_CASE("the model of a pipeline is that of one rank, to the byte") {
  const Workbench bench;
  const std::string flags = fmt::format("{} --steps 2 --lr 1e-2", kTrain);
  const auto alone = bench.zeroth(1, flags + " --output alone");
  REQUIRE_MESSAGE(alone.code == 0, alone.out << alone.err);
  bench.write("ds.json", R"({"pipeline": {"stages": 2}, "comms_logger": {"enabled": true}})");
  const auto staged = bench.zeroth(2, flags + " --deepspeed ds.json --output staged");
  REQUIRE_MESSAGE(staged.code == 0, staged.out << staged.err);
  CHECK(has(staged.out, "all_reduce"));
  // No stage passes its parameters, of several KiB, to rank 0.
  CHECK_FALSE(std::regex_search(staged.out, std::regex("broadcast +[0-9.]+ [KMG]iB")));
  CHECK(bench.read("staged/model.safetensors") == bench.read("alone/model.safetensors"));
}

TEST_CASE("what goes wrong waits for the end, and leaves nothing") {
  const Workbench bench;
  const auto spec = model::read_model_spec(bench / "model");
  const auto infos = parameters_of(spec);
  HfModelSink output({.source = bench / "model", .output = bench / "out", .spec = spec},
                     torch::kFloat16);
  output.begin(infos, torch::kFloat32);
  for (const auto& info : infos) output.write(info.name, torch::full(info.shape, 1e6));
  const auto failure = finish(output);
  REQUIRE(failure);
  CHECK(has(*failure, "has a value of 1e+06, beyond the 65504 that fp16 holds"));
  const auto left = std::distance(fs::directory_iterator(bench / ""), {});
  CHECK(left == 3);  // what the bench itself holds
}

TEST_CASE("what rank 0 complains about is thrown on all ranks, and nothing where it does not") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const bool first = mesh->rank() == 0;
    CHECK_NOTHROW(run_on_rank_0(*mesh, [] {}));
    CHECK_NOTHROW(run_on_rank_0(*mesh, [&] {
      if (!first) throw Error("only rank 0 counts");
    }));
    CHECK_THROWS_WITH_AS(run_on_rank_0(*mesh, [] { throw Error("disk full"); }),
                         first ? "disk full" : "rank 0 failed: disk full", Error);
    CHECK_THROWS_AS(run_on_rank_0(*mesh, [] { throw std::bad_alloc(); }), Error);
  });
}

}  // namespace zeroth::trainer::output_test
