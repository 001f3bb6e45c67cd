// Offload beside a device, all of it on the CPU: what a GPU run does with streams and page-locked
// memory, with copies that are as late as they may be.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "engine/engine_impl.h"
#include "engine/state/run_state.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "tests/support/read_state.h"
#include "tests/support/same_group.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::separate_device_test {
namespace {

using configs::OffloadDevice;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;
using testing::copies_of;
using testing::kFakeDevice;
using testing::late_link;

struct Case {
  const char* name;
  int stage = 0;
  int ranks = 1;
  configs::Precision precision = configs::Precision::kFp32;
  int64_t accumulation = 1;
  OffloadDevice optimizer = OffloadDevice::kNone;
  Step step = Step::kCpu;
  OffloadDevice parameters = OffloadDevice::kNone;
  double ratio = 1;
};

configs::Config config_of(const Case& c, const std::string& directory) {
  configs::Config config =
      chain_config(12 / (c.ranks * static_cast<int>(c.accumulation)), c.accumulation, c.ranks);
  config.precision = c.precision;
  config.gradient_clipping = 0.5;
  config.zero.stage = c.stage;
  config.zero.sub_group_size_elements = 64;
  config.zero.offload_optimizer.device = c.optimizer;
  config.zero.offload_optimizer.step = c.step;
  config.zero.offload_optimizer.ratio = c.ratio;
  config.zero.offload_optimizer.nvme_path = directory;
  config.zero.offload_param.device = c.parameters;
  config.zero.offload_param.nvme_path = directory;
  config.zero.offload_param.buffer_size_elements = 4096;
  config.zero.offload_param.max_in_cpu_elements = 50;
  return config;
}

struct Trained {
  std::vector<double> numbers;  // losses, norms, the evaluation's loss
  std::vector<torch::Tensor> masters;
};

Trained train(Engine& engine, const model::Blocks& blocks, const Case& c, comm::DeviceMesh& mesh) {
  load_values(engine.impl().sharded_state(), *values_of_blocks(blocks, mesh));
  testing::ChainLoader loader(
      {.accumulation = c.accumulation, .rank = mesh.rank(), .world_size = mesh.world_size()});
  Trained trained;
  for (int step = 0; step < 4; ++step) {
    const StepStats stats = engine.train_batch(loader);
    trained.numbers.push_back(stats.loss);
    trained.numbers.push_back(stats.grad_norm);
    if (step == 1) trained.numbers.push_back(engine.eval_batch(loader, 1).loss);
  }
  for (size_t unit = 0; unit < engine.impl().plan().units.size(); ++unit) {
    trained.masters.push_back(testing::read_master(engine.impl().optimizer(), unit));
  }
  return trained;
}

// Runs the case with everything on the device, and as it is with late copies.
void check_case(const Case& c) {
  CAPTURE(c.name);
  for (const uint64_t seed : {0, 1, 2}) {
    testing::run_ranks(c.ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const TempFolder directory;
      Case plain = c;
      plain.optimizer = plain.parameters = OffloadDevice::kNone;
      const model::Blocks source = testing::make_chain({.hidden = 20});
      Engine on_device(testing::make_chain({.hidden = 20}), config_of(plain, directory.path()),
                       mesh);
      const Trained expected = train(on_device, source, c, *mesh);

      const auto link = late_link(seed);
      const auto apart = std::make_shared<comm::DeviceMesh>(
          kFakeDevice, std::make_unique<testing::SameGroup>(mesh));
      Engine engine(testing::make_chain({.hidden = 20}), config_of(c, directory.path()), apart, {},
                    link);
      const Trained trained = train(engine, source, c, *apart);
      CHECK(copies_of(*link).copies() > 0);
      CHECK(trained.numbers == expected.numbers);
      for (size_t unit = 0; unit < expected.masters.size(); ++unit) {
        CHECK(at::equal(trained.masters[unit], expected.masters[unit]));
      }
    });
  }
}

constexpr auto kBf16 = configs::Precision::kBf16;
constexpr auto kCpu = OffloadDevice::kCpu;
constexpr auto kNvme = OffloadDevice::kNvme;

}  // namespace

TEST_CASE("states on the host, updated there or streamed through the device, change no bit") {
  for (const Case& c : {
           Case{.name = "stage 0, host", .optimizer = kCpu},
           Case{.name = "stage 0, streamed", .optimizer = kCpu, .step = Step::kGpu},
           Case{.name = "stage 0, accumulated", .accumulation = 3, .optimizer = kCpu},
           Case{.name = "stage 0, two ranks", .ranks = 2, .precision = kBf16, .optimizer = kCpu},
           Case{"stage 1, late", 1, 2, kBf16, 2, kCpu},
           Case{"stage 1, late, streamed", 1, 2, kBf16, 2, kCpu, Step::kGpu},
           Case{"stage 2, bf16", 2, 2, kBf16, 1, kCpu},
           Case{"stage 2, bf16, streamed", 2, 2, kBf16, 1, kCpu, Step::kGpu},
           Case{"stage 2, accumulated", 2, 2, kBf16, 3, kCpu},
           Case{"stage 3, parameters on the device", 3, 2, kBf16, 1, kCpu},
           Case{.name = "half of it", .stage = 2, .ranks = 2, .optimizer = kCpu, .ratio = 0.5},
           Case{.name = "half of it, streamed",
           .stage = 3,
           .ranks = 2,
           .optimizer = kCpu,
           .step = Step::kGpu,
           .ratio = 0.5},
       }) {
    check_case(c);
  }
}

TEST_CASE("parameters on the host, and states on the host or in a file, change no bit") {
  for (const Case& c : {
           Case{.name = "one rank", .stage = 3, .optimizer = kCpu, .parameters = kCpu},
           Case{.name = "parameters alone", .stage = 3, .ranks = 2, .parameters = kCpu},
           Case{"bf16", 3, 2, kBf16, 1, kCpu, Step::kCpu, kCpu},
           Case{"bf16, streamed", 3, 2, kBf16, 2, kCpu, Step::kGpu, kCpu},
           Case{"all in files", 3, 2, kBf16, 1, kNvme, Step::kCpu, kNvme},
           Case{"all in files, streamed", 3, 1, kBf16, 1, kNvme, Step::kGpu, kNvme},
           Case{.name = "states in a file, one rank",
           .precision = kBf16,
           .optimizer = kNvme,
           .step = Step::kGpu},
       }) {
    check_case(c);
  }
}

TEST_CASE("with step auto both rates are measured, and the choice is told") {
  const comm::DeviceMesh apart(kFakeDevice, comm::make_solo_group());
  Case c{.name = "auto", .optimizer = kCpu, .step = Step::kAuto};
  const auto link = std::make_shared<device::HostLink>(
      device::HostLink{device::HostMemory(), device::make_copy_stream(torch::kCPU)});
  Engine engine(testing::make_chain(), config_of(c, ""),
                std::make_shared<comm::DeviceMesh>(kFakeDevice, comm::make_solo_group()), {}, link);
  REQUIRE(engine.notes().size() == 1);
  CHECK(engine.notes()[0].find("updates on the ") == 0);
  // A run that goes on is told the choice, and measures nothing.
  REQUIRE(engine.measured_step());
  c.step = *engine.measured_step();
  Engine again(testing::make_chain(), config_of(c, ""),
               std::make_shared<comm::DeviceMesh>(kFakeDevice, comm::make_solo_group()), {}, link);
  CHECK(again.notes().empty());
  CHECK_FALSE(again.measured_step());
}

}  // namespace zeroth::engine::separate_device_test
