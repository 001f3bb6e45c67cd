#include "trainer/checkpoints.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "model/blocks/build.h"
#include "model/hf/checkpoint_source.h"
#include "model/hf/safetensors.h"
#include "tests/support/ranks.h"
#include "tests/trainer/disk.h"
#include "tests/trainer/workbench.h"
#include "trainer/step_folder.h"

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

namespace fs = std::filesystem;

std::vector<engine::ParameterInfo> parameters_of(const model::ModelSpec& spec) {
  std::vector<engine::ParameterInfo> infos;
  for (const auto& block : model::build_blocks(spec)) {
    for (const auto& item : block->named_parameters()) {
      infos.push_back(
          {block->label() + "." + item.key(), item.value().sizes().vec(), torch::kFloat32});
    }
  }
  return infos;
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
  CHECK(has(out, "warning    disk/out/step-7 is of an earlier run and stays"));
  CHECK_FALSE(has(out, "are free there"));
  const Disk disk(bench / "disk", "size=400k");
  if (!disk.mounted()) return;
  const auto small =
      bench.finetune(fmt::format("{} --steps 16 --save-every 5 --output disk/out", kTrain));
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
  CHECK(has(result.err, ": no model is saved; the newest good model is out/step-6"));
  CHECK((bench.read("out/model.safetensors") == good));
  CHECK(names_in(bench / "out").contains("step-4"));
  CHECK(names_in(bench / "out").contains("step-6"));
}

TEST_CASE("good models stay until a loss shows that the newest is one, too") {
  const Workbench bench;
  write_rate_that_jumps(bench, "1e20");
  const auto result = bench.zeroth(
      1, fmt::format("{} --deepspeed ds.json --output out --steps 9 --save-every 1", kTrain));
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "the newest good model is out/step-6"), result.err);
  const auto names = names_in(bench / "out");
  for (const char* name : {"step-5", "step-6", "step-7"}) CHECK_MESSAGE(names.contains(name), name);
  CHECK(std::count_if(names.begin(), names.end(), is_step_folder) == 3);
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
    CHECK(has(result.err, "; the newest good model is out/step-6"));
    CHECK_FALSE(fs::exists(bench / "out/model.safetensors"));
    CHECK(names_in(bench / "out").contains("step-6"));
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
                    "saved before"),
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
      "error: the loss of the evaluation at step 7 is nan: the model that was saved before is in ";
  CHECK_MESSAGE(has(result.err, "rank 0: " + said), result.err);
  CHECK_MESSAGE(has(result.err, " now, and out holds the former one"), result.err);
  CHECK((bench.read("out/model.safetensors") == good));
  CHECK(fs::exists(bench / "out/train_log.html"));
  const size_t at = result.err.find(said) + said.size();
  const fs::path aside = result.err.substr(at, result.err.find(' ', at) - at);
  CHECK(aside.filename().string().starts_with("out.new-"));
  CHECK(model::SafetensorsFolder(aside).entries().size() > 10);

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

TEST_CASE("what the engine hands over becomes a folder that is read again") {
  const Workbench bench;
  const fs::path out = bench / "out";
  const auto spec = model::read_model_spec(bench / "model");
  const auto infos = parameters_of(spec);
  HfOutput output({.source = bench / "model", .output = out, .spec = spec}, std::nullopt);
  output.begin(infos);
  for (const auto& info : infos) output.write(info.name, torch::full(info.shape, 0.25));
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(output.finish());
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK_MESSAGE(fs::exists(out / file), file);
  }
  const auto saved = model::open_weights(out, spec, 1);
  for (const auto& info : infos) {
    saved->check(info.name, info.shape);
    const torch::Tensor values = torch::zeros({4});
    saved->read(info.name, 2, values);
    CHECK_MESSAGE((values == 0.25).all().item<bool>(), info.name);
  }
}

TEST_CASE("a rank that is not asked writes nothing") {
  const Workbench bench;
  HfOutput output({.source = "", .output = bench / "out", .spec = {}}, std::nullopt);
  CHECK_FALSE(output.finish());
  CHECK_FALSE(fs::exists(bench / "out"));
}

TEST_CASE("what goes wrong waits for the end, and leaves nothing") {
  const Workbench bench;
  const auto spec = model::read_model_spec(bench / "model");
  const auto infos = parameters_of(spec);
  HfOutput output({.source = bench / "model", .output = bench / "out", .spec = spec},
                  torch::kFloat16);
  output.begin(infos);
  for (const auto& info : infos) output.write(info.name, torch::full(info.shape, 1e6));
  const auto failure = output.finish();
  REQUIRE(failure);
  CHECK(has(*failure, "has a value of 1e+06, beyond the 65504 that fp16 holds"));
  const auto left = std::distance(fs::directory_iterator(bench / ""), {});
  CHECK(left == 3);  // what the bench itself holds
}

TEST_CASE("what rank 0 complains about is thrown on all ranks, and nothing where it does not") {
  testing::run_ranks(2, [](std::shared_ptr<comm::Mesh> mesh) {
    const bool first = mesh->rank() == 0;
    CHECK_NOTHROW(throw_if_rank_0_failed(*mesh, std::nullopt));
    CHECK_NOTHROW(throw_if_rank_0_failed(*mesh, first ? "" : "only rank 0 counts"));
    CHECK_THROWS_WITH_AS(throw_if_rank_0_failed(*mesh, first ? "disk full" : ""),
                         first ? "disk full" : "rank 0 failed: disk full", Error);
  });
}

}  // namespace zeroth::trainer
