// Training on the GPU with what rests elsewhere, against the same with all of it on the GPU; and
// over NCCL, of one rank.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <optional>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/groups/group.h"
#include "comm/groups/nccl.h"
#include "engine/engine_impl.h"
#include "engine/state/run_state.h"
#include "model/weight_source.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/read_state.h"
#include "tests/support/temp_folder.h"

namespace zeroth::engine::offload_train_test {
namespace {

using configs::OffloadDevice;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;

constexpr auto kDevice = OffloadDevice::kNone;
constexpr auto kCpu = OffloadDevice::kCpu;
constexpr auto kNvme = OffloadDevice::kNvme;
// Of the optimizer, at which losses follow the gradients' rounding and do not amplify it.
constexpr double kCalm = 1e-5;
constexpr testing::ChainOptions kChain = {.hidden = 256, .layers = 6};

struct Case {
  OffloadDevice optimizer = kDevice;
  Step step = Step::kCpu;
  OffloadDevice parameters = kDevice;
  configs::Precision precision = configs::Precision::kFp32;
  int64_t accumulation = 1;
  configs::RecomputeConfig recompute = {};
  std::optional<int> stage = {};
  bool nccl = false;   // the world is a group of NCCL
  double rate = 0.02;  // at which the order of a sum decides the losses after three steps
};

// Losses and norms of six steps, and the masters after them.
struct Trained {
  std::vector<double> numbers;
  std::vector<torch::Tensor> masters;
  int64_t collectives = 0;
};

std::shared_ptr<comm::DeviceMesh> one_rank(bool nccl) {
  const torch::Device device(torch::kCUDA, 0);
  if (!nccl) return std::make_shared<comm::DeviceMesh>(device, comm::make_solo_group());
  auto world = comm::load_nccl().make_group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                                            {.timeout = std::chrono::seconds(60)});
  comm::DeviceMesh::BootstrapInfo info;
  info.cpu_group = comm::make_device_staged_group(*world, device);
  return std::make_shared<comm::DeviceMesh>(device, std::move(info), std::move(world));
}

Trained train(const Case& c) {
  const TempFolder directory;
  configs::Config config = chain_config(12 / c.accumulation, c.accumulation, 1);
  config.precision = c.precision;
  config.gradient_clipping = 0.5;
  config.optimizer.lr = c.rate;
  config.zero.stage = c.stage.value_or(c.parameters == kDevice ? 2 : 3);
  config.zero.sub_group_size_elements = 8192;
  config.zero.offload_optimizer.device = c.optimizer;
  config.zero.offload_optimizer.step = c.step;
  config.zero.offload_optimizer.nvme_path = directory.path();
  config.zero.offload_param.device = c.parameters;
  config.zero.offload_param.nvme_path = directory.path();
  config.zero.offload_param.max_in_cpu_elements = 0;
  config.recompute = c.recompute;
  const auto mesh = one_rank(c.nccl);
  const auto engine = testing::make_engine(testing::make_chain(kChain), config, mesh);
  testing::ChainLoader loader({.accumulation = c.accumulation});
  Trained trained;
  for (int step = 0; step < 6; ++step) {
    const StepStats stats = engine->train_batch(loader);
    trained.numbers.push_back(stats.loss);
    trained.numbers.push_back(stats.grad_norm);
  }
  trained.numbers.push_back(engine->eval_batch(loader, 1).loss);
  for (size_t unit = 0; unit < engine->impl().plan().units.size(); ++unit) {
    trained.masters.push_back(
        testing::read_master(engine->impl().optimizer(), unit).to(torch::kCPU).clone());
  }
  trained.collectives = mesh->times().collectives;
  return trained;
}

void check_bits(const Trained& actual, const Trained& expected) {
  CHECK(actual.numbers == expected.numbers);
  for (size_t i = 0; i < expected.masters.size(); ++i) {
    CHECK(at::equal(actual.masters[i], expected.masters[i]));
  }
}

void check_near(const Trained& actual, const Trained& expected, double tolerance) {
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    CHECK(actual.numbers[i] == doctest::Approx(expected.numbers[i]).epsilon(tolerance));
  }
}

}  // namespace

TEST_CASE("a GPU step over states on the host or in a file has the bits of states on the GPU") {
  for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
    const Trained on_gpu = train({.precision = precision});
    check_bits(train({.optimizer = kCpu, .step = Step::kGpu, .precision = precision}), on_gpu);
    check_bits(train({.optimizer = kNvme, .step = Step::kGpu, .precision = precision}), on_gpu);
    check_bits(train({kCpu, Step::kGpu, kCpu, precision}), on_gpu);
    check_bits(train({kNvme, Step::kGpu, kNvme, precision}), on_gpu);
  }
}

TEST_CASE("a host step is near the GPU's, and the same whatever rests where") {
  check_near(train({.optimizer = kCpu, .rate = kCalm}), train({.rate = kCalm}), 2e-5);
  const Trained on_host = train({.optimizer = kCpu});
  check_bits(train({.optimizer = kNvme}), on_host);
  check_bits(train({.optimizer = kCpu, .parameters = kCpu}), on_host);
  check_bits(train({.optimizer = kNvme, .parameters = kNvme}), on_host);
}

TEST_CASE("accumulated gradients on the host give the losses of those on the GPU") {
  const Trained on_gpu = train({.accumulation = 3, .rate = kCalm});
  check_near(train({.optimizer = kCpu, .accumulation = 3, .rate = kCalm}), on_gpu, 2e-5);
}

TEST_CASE("parameters alone on the host change no bit") {
  check_bits(train({.parameters = kCpu}), train({}));
}

TEST_CASE("a rank whose world is a group of NCCL has the bits of a rank alone, in each stage") {
  const auto check = [](Case c) {
    CAPTURE(*c.stage);
    const Trained alone = train(c);
    c.nccl = true;
    const Trained over_nccl = train(c);
    check_bits(over_nccl, alone);
    CHECK(over_nccl.collectives > 6);  // steps
  };
  constexpr auto kBf16 = configs::Precision::kBf16;
  for (const int stage : {0, 1, 2, 3}) {
    check({.accumulation = 2, .stage = stage});
    check({.optimizer = kCpu, .step = Step::kGpu, .precision = kBf16, .stage = stage});
    check({.optimizer = kCpu, .parameters = stage == 3 ? kCpu : kDevice, .stage = stage});
  }
}

TEST_CASE("initial values come from page-locked memory") {
  struct Source final : model::WeightSource {
    void check(const std::string&, const std::vector<int64_t>&) override {}
    void read(const model::ParamSlice&, torch::Tensor out) override {
      ++reads;
      pinned += out.is_pinned() ? 1 : 0;
      out.fill_(0.5);
    }
    int reads = 0, pinned = 0;
  } source;
  const auto engine =
      testing::make_engine(testing::make_chain(kChain), chain_config(12, 1, 1), one_rank(false));
  REQUIRE(load_values(engine->impl().sharded_state(), source));
  CHECK(source.reads > 0);
  CHECK(source.pinned == source.reads);
  const torch::Tensor master = testing::read_master(engine->impl().optimizer(), 0);
  CHECK(at::equal(master.narrow(0, 0, 256), torch::full({256}, 0.5f, master.device())));
}

TEST_CASE("block inputs that wait on the host change no bit") {
  for (configs::RecomputeConfig recompute :
       {configs::RecomputeConfig{.number_checkpoints = 4}, {.every_nth_block = 1}}) {
    const Trained on_gpu = train({.accumulation = 2, .recompute = recompute});
    recompute.cpu_checkpointing = true;
    check_bits(train({.accumulation = 2, .recompute = recompute}), on_gpu);
  }
}

}  // namespace zeroth::engine::offload_train_test
