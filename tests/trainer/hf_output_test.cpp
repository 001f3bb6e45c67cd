#include "trainer/hf_output.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "model/blocks/build.h"
#include "model/hf/checkpoint_source.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer {
namespace {

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

}  // namespace zeroth::trainer
