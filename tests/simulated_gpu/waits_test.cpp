// How often the host waits for the device.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "engine/engine.h"
#include "model/build.h"
#include "model/checkpoint_source.h"
#include "tests/engine/chain_config.h"
#include "tests/simulated_gpu/tokens.h"

namespace zeroth::simulated {
namespace {

int64_t waits() {
  static const auto count =
      reinterpret_cast<int64_t (*)()>(dlsym(RTLD_DEFAULT, "zeroth_simulated_waits"));
  const bool is_there = count != nullptr;
  REQUIRE(is_there);
  return count();
}

}  // namespace

TEST_CASE("in a step of one rank the host waits for the device once, at its end") {
  const std::string folder = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama";
  const model::ModelSpec spec = model::read_model_spec(folder);
  for (const bool masked : {false, true}) {
    const configs::Config config = engine::chain_config(4, masked ? 3 : 1, 1);
    const auto mesh =
        std::make_shared<comm::Mesh>(torch::Device(torch::kCUDA, 0), comm::make_solo_group());
    const auto engine =
        engine::initialize(model::build_blocks(spec), config, mesh,
                           {.weights = model::open_weights(folder, spec, config.seed)});
    Tokens data(masked);
    for (int step = 0; step < 3; ++step) {
      const int64_t before = waits();
      engine->train_batch(data);
      if (step > 0) CHECK(waits() - before == 1);  // the first makes angles and such
    }
  }
}

}  // namespace zeroth::simulated
