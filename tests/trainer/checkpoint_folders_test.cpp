// Every checkpoint folder of a run is a model as transformers loads it: runs of which
// tools/make_checkpoint_folder_fixtures.py wrote what transformers found in their folders, and the
// same runs here.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "base/files/crc32c.h"
#include "model/hf/safetensors.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::checkpoint_folders_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kSteps = 3;

// How far the same run may be from itself on another processor. The rate of its first step is 0.
struct Bounds {
  double first_loss, loss;
  double projection;  // of a tensor behind the last step
};
// Sums in another order. Seen between four levels of instructions: 6e-8 and 3e-7.
constexpr Bounds kFp32 = {.first_loss = 2e-5, .loss = 2e-5, .projection = 5e-6};
// Gradients are rounded to bf16, and so is what is saved: a weight may be its neighbour, 2^-8 of it
// away. Seen: 8e-4 and 0.01. A step that is trained moves the loss by 0.14 and more.
constexpr Bounds kBf16 = {.first_loss = 2e-5, .loss = 2.5e-3, .projection = 0.03};

const Bounds& bounds_of(const Json& run) {
  return run["ds_config"]["bf16"]["enabled"].get<bool>() ? kBf16 : kFp32;
}

void make_model(const Workbench& bench, const Json& run) {
  const fs::path tests = fs::path(ZEROTH_SOURCE_DIR) / "tests";
  const fs::path source = tests / "model/fixtures" / run["model"].get<std::string>();
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy(source / file, bench / "model" / file, fs::copy_options::overwrite_existing);
  }
  bench.write("model/generation_config.json", run["generation_config"].dump());
}

std::set<std::string> files_in(const fs::path& directory) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file()) files.insert(entry.path().filename().string());
  }
  return files;
}

// The sum of w_i cos(i): changed also by what stands in another place.
double projection(std::span<const std::byte> bytes, const std::string& dtype) {
  const torch::Dtype type = dtype == "F32" ? torch::kFloat32 : torch::kBFloat16;
  const auto count = static_cast<int64_t>(bytes.size() / c10::elementSize(type));
  torch::Tensor values = torch::empty({count}, type);
  std::memcpy(values.data_ptr(), bytes.data(), bytes.size());
  return values.to(torch::kDouble).dot(at::arange(count, torch::kDouble).cos()).item<double>();
}

// Names, dtypes and shapes, and with them the bytes behind the first step and the values behind the
// last one. Returns the largest difference of a value.
double compare_tensors(const fs::path& directory, int64_t step, const Json& run,
                       const Bounds& bounds) {
  const model::SafetensorsDirectory saved(directory);
  std::set<std::string> names;
  double largest = 0;
  for (const auto& [name, entry] : saved.entries()) {
    CAPTURE(name);
    names.insert(name);
    REQUIRE(run["tensors"].contains(name));
    const Json& expected = run["tensors"][name];
    CHECK(entry.tensor->dtype == expected["dtype"].get<std::string>());
    CHECK(entry.tensor->shape == expected["shape"].get<std::vector<int64_t>>());
    const auto bytes = entry.file->bytes(*entry.tensor);
    if (step == 1)
      CHECK(format_crc(crc32c(bytes)) == expected["crc32c_of_first"].get<std::string>());
    if (step != kSteps) continue;
    const double off = std::abs(projection(bytes, entry.tensor->dtype) -
                                expected["projection_of_last"].get<double>());
    CHECK(off <= bounds.projection);
    largest = std::max(largest, off);
  }
  CHECK(names.size() == run["tensors"].size());
  return largest;
}

// In fp32, of the model in `directory`.
double loss_by_program(const Workbench& bench, const std::string& directory) {
  fs::remove(bench / "e.jsonl");
  const auto done = bench.finetune("--model " + directory +
                                   " --eval-only --data train.bin --seq-len 16 --metrics e.jsonl");
  REQUIRE_MESSAGE(done.code == 0, done.out << done.err);
  return bench.evaluations("e.jsonl").at(0)["eval_loss"];
}

struct Largest {
  double loss = 0, projection = 0;
};

// The folder of a step, and what the run itself found its loss to be.
Largest compare_step(const Workbench& bench, const Json& run, int64_t step, double own_loss) {
  CAPTURE(step);
  const Bounds& bounds = bounds_of(run);
  const std::string name = fmt::format("out/checkpoints/step-{}", step);
  CHECK(files_in(bench / name) == run["files"].get<std::set<std::string>>());
  CHECK(format_crc(crc32c(bench.read(name + "/config.json"))) ==
        run["config_crc32c"].get<std::string>());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    CHECK_MESSAGE(
        (bench.read(fmt::format("{}/{}", name, file)) == bench.read(fmt::format("model/{}", file))),
        file);
  }
  Largest largest;
  largest.projection = compare_tensors(bench / name, step, run, bounds);
  const double theirs = run["losses"][static_cast<size_t>(step - 1)];
  CHECK(std::abs(own_loss - theirs) <= bounds.loss);
  if (step != 1 && step != kSteps) return largest;
  largest.loss = std::abs(loss_by_program(bench, name) - theirs);
  CHECK(largest.loss <= (step == 1 ? bounds.first_loss : bounds.loss));
  return largest;
}

Largest compare(const Json& run) {
  const Workbench bench;
  make_model(bench, run);
  bench.write("ds.json", run["ds_config"].dump());
  const auto done = bench.zeroth(run["ranks"],
                                 "--model model --data train.bin --eval-data train.bin --metrics "
                                 "m.jsonl --deepspeed ds.json --output out " +
                                     run["flags"].get<std::string>());
  REQUIRE_MESSAGE(done.code == 0, done.out << done.err);
  const Workbench::Rows evaluations = bench.evaluations("m.jsonl");
  REQUIRE(evaluations.size() == kSteps);
  Largest largest;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double own = evaluations[static_cast<size_t>(step - 1)]["eval_loss"];
    const Largest here = compare_step(bench, run, step, own);
    largest = {std::max(largest.loss, here.loss), std::max(largest.projection, here.projection)};
  }
  return largest;
}

}  // namespace

TEST_CASE("every checkpoint folder of a run is what transformers loads, with its loss") {
  const Json runs = Json::parse(
      std::ifstream(ZEROTH_SOURCE_DIR "/tests/trainer/fixtures/checkpoint_folders.json"));
  std::set<std::string> models;
  for (const Json& run : runs) {
    const std::string name =
        fmt::format("{} in {} on {} ranks", run["model"].get<std::string>(),
                    &bounds_of(run) == &kBf16 ? "bf16" : "fp32", run["ranks"].get<int>());
    CAPTURE(name);
    models.insert(name);
    const Largest largest = compare(run);
    MESSAGE(name << ": losses differ by at most " << largest.loss << ", weights by "
                 << largest.projection);
  }
  CHECK(models.size() == 11);
}

}  // namespace zeroth::trainer::checkpoint_folders_test
