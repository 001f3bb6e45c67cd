#include "trainer/hf_output.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "model/build.h"
#include "model/checkpoint_source.h"
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
  Flags flags;
  flags.model = (bench / "model").string();
  flags.output = (bench / "out").string();
  const auto spec = model::read_model_spec(flags.model);
  const auto infos = parameters_of(spec);
  HfOutput output(flags, spec);
  output.begin(infos);
  for (const auto& info : infos) output.write(info.name, torch::full(info.shape, 0.25));
  CHECK_FALSE(fs::exists(flags.output));
  output.finish();
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK_MESSAGE(fs::exists(bench / "out" / file), file);
  }
  const auto saved = model::open_weights(flags.output, spec, 1);
  for (const auto& info : infos) {
    saved->check(info.name, info.shape);
    const torch::Tensor values = torch::zeros({4});
    saved->read(info.name, 2, values);
    CHECK_MESSAGE((values == 0.25).all().item<bool>(), info.name);
  }
}

TEST_CASE("a rank that is not asked writes nothing") {
  const Workbench bench;
  Flags flags;
  flags.output = (bench / "out").string();
  const model::ModelSpec spec;
  HfOutput output(flags, spec);
  output.finish();
  CHECK_FALSE(fs::exists(flags.output));
}

}  // namespace zeroth::trainer
