// Gradients that land on the host, over whole steps: who waits for whom, and what it takes.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>

#include "model/blocks/main_grad.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "zero/gradient_offload.h"
#include "zero/memory_plan.h"
#include "zero/strategy.h"

namespace zeroth::zero::gradient_offload_step_test {
namespace {

// A device that is as slow as it may be: it has never reached a point by itself.
class SlowDevice final : public device::CopyStream {
 public:
  int queued = 0;                  // blocks whose backward it was given
  int awaited_block = 0;           // by the stream of copies, in record_after()
  std::vector<int> copied_behind;  // per copy: the block it waits for
  std::vector<int> left;           // per wait of the host: blocks that it was given since

  device::StreamEvent record_event() override { return moment(queued); }
  device::StreamEvent record_after(const std::function<void()>& wait) override {
    wait();
    return moment(awaited_block);
  }
  device::StreamEvent copy(const torch::Tensor& to, const torch::Tensor& from,
                           const std::vector<device::StreamEvent>& after) override {
    int block = 0;
    for (const device::StreamEvent& point : after) block = std::max(block, block_of(point));
    copied_behind.push_back(block);
    to.copy_(from);
    return moment(block);
  }
  void wait_event(const device::StreamEvent&) override {}
  void wait(const device::StreamEvent& point) override {
    if (point) left.push_back(queued - block_of(point));
  }
  bool is_complete(const device::StreamEvent& point) override { return !point; }
  void drain() noexcept override {}

 private:
  static device::StreamEvent moment(int block) { return std::make_shared<int>(block); }
  static int block_of(const device::StreamEvent& point) {
    return point ? *std::static_pointer_cast<int>(point) : 0;
  }
};

// The first of several ranks, alone: collectives last until somebody waits.
class FirstRank final : public comm::Group {
 public:
  FirstRank(int size, SlowDevice* device) : size_(size), device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  comm::CollectiveHandle issue(const comm::Collective& collective) override {
    const auto& [kind, out, in, what, op, root] = collective;
    if (kind == comm::Collective::OpType::kReduceScatter) out.copy_(in.narrow(0, 0, out.numel()));
    const int block = device_ == nullptr ? 0 : device_->queued;
    return comm::CollectiveHandle(std::make_shared<OnDevice>(device_, block));
  }
  std::unique_ptr<comm::Group> split(const comm::Partition& partition) override {
    return std::make_unique<FirstRank>(static_cast<int>(partition.part_of(0).size()), device_);
  }

 private:
  struct OnDevice final : comm::CollectiveHandle::Impl {
    OnDevice(SlowDevice* on, int block) : device(on), issued_at(block) {}
    void wait() override {}
    bool block_current_stream() override {
      if (device != nullptr) device->awaited_block = issued_at;
      return true;
    }
    SlowDevice* device;
    int issued_at;
  };

  int size_;
  SlowDevice* device_;
};

std::shared_ptr<device::HostLink> link_of(std::unique_ptr<device::CopyStream> copies) {
  return std::make_shared<device::HostLink>(
      device::HostLink{device::HostMemory(), std::move(copies)});
}

std::unique_ptr<comm::Group> group_of(int ranks, SlowDevice* device = nullptr) {
  if (ranks == 1) return comm::make_solo_group();
  return std::make_unique<FirstRank>(ranks, device);
}

// One micro-batch; `device` is given each block's backward.
void run_backward(const UnitPlan& plan, GradReducer& grads, SlowDevice* device) {
  const torch::NoGradGuard no_grad;
  for (size_t block = plan.block_units.size(); block-- > 0;) {
    grads.open(block);
    for (const size_t unit : plan.block_units[block]) {
      for (const torch::Tensor& param : plan.units[unit].params) {
        if (plan.units[unit].trainable) model::accumulate_grad(param, torch::ones_like(param));
      }
    }
    if (device != nullptr) ++device->queued;
    grads.add(block);
  }
}

constexpr testing::ChainOptions kChain = {.hidden = 20, .layers = 6};
constexpr int kBlocks = 8;

// The chain's gradients on the first of `ranks`, beside a slow device.
struct BesideSlowDevice {
  explicit BesideSlowDevice(int ranks)
      : plan(plan_units(blocks, ranks)), mesh(torch::kCPU, group_of(ranks, &device)) {}

  model::Blocks blocks = testing::make_chain(kChain);
  UnitPlan plan;
  std::shared_ptr<device::HostLink> link = link_of(std::make_unique<SlowDevice>());
  SlowDevice& device = dynamic_cast<SlowDevice&>(*link->copies);
  comm::DeviceMesh mesh;
};

}  // namespace

TEST_CASE("a gradient leaves behind its own block's work, and the device has work left meanwhile") {
  for (const int ranks : {1, 2}) {
    for (const int64_t chunk_bytes : {int64_t{200}, int64_t{1} << 20}) {
      CAPTURE(ranks);
      CAPTURE(chunk_bytes);
      BesideSlowDevice beside(ranks);
      SlowDevice& device = beside.device;
      GradReducerOptions options;
      options.wire = torch::kBFloat16;
      options.gradient_offload = std::make_shared<GradientOffload>(
          beside.link, GradientOffloadOptions{.chunk_bytes = chunk_bytes});
      const auto grads =
          make_grad_reducer(ReducerKind::kScatter, beside.plan, beside.mesh, options);
      grads->set_backward_order(testing::backward_order(kBlocks, 3));
      for (int micro = 0; micro < 3; ++micro) {
        run_backward(beside.plan, *grads, &device);
        for (const int blocks_left : device.left) CHECK(blocks_left >= 1);
      }
      CHECK_FALSE(device.left.empty());
      grads->finish();
      std::vector<int> behind = device.copied_behind;
      CHECK(std::is_sorted(behind.begin(), behind.end()));
      behind.erase(std::unique(behind.begin(), behind.end()), behind.end());
      std::vector<int> own;
      for (int block = 1; block <= 3 * kBlocks; ++block) own.push_back(block);
      CHECK(behind == own);
    }
  }
}

TEST_CASE("without accumulation the host waits for no copy before the end of backward") {
  for (const int ranks : {1, 2}) {
    BesideSlowDevice beside(ranks);
    SlowDevice& device = beside.device;
    GradReducerOptions options;
    options.gradient_offload = std::make_shared<GradientOffload>(beside.link);
    const auto grads = make_grad_reducer(ReducerKind::kScatter, beside.plan, beside.mesh, options);
    grads->set_backward_order(testing::backward_order(kBlocks, 1));
    run_backward(beside.plan, *grads, &device);
    CHECK(device.left.empty());
    grads->finish();
    CHECK(device.left.size() == kBlocks);
  }
}

TEST_CASE("the plan's gradients beside a GPU are those of a step") {
  for (const int ranks : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t accumulation : {1, 2, 3}) {
        for (const auto precision : {configs::Precision::kFp32, configs::Precision::kBf16}) {
          CAPTURE(ranks);
          CAPTURE(stage);
          CAPTURE(accumulation);
          CAPTURE(static_cast<int>(precision));
          configs::Config config;
          config.precision = precision;
          config.batch = {ranks * accumulation, 1, accumulation};
          config.zero.stage = stage;
          config.zero.offload_optimizer.device = configs::OffloadDevice::kCpu;
          config.zero.offload_optimizer.step = configs::OffloadOptimizerConfig::UpdateDevice::kCpu;
          const model::Blocks blocks = testing::make_chain(kChain);
          UnitPlan plan = plan_units(blocks, ranks);
          const std::vector<size_t> order = testing::backward_order(blocks.size(), accumulation);
          const MemoryPlan memory =
              plan_memory(plan, config, torch::kCUDA, {.accesses = {}, .backward_order = order});
          comm::DeviceMesh mesh(testing::kFakeDevice, group_of(ranks));
          const Strategy strategy = make_strategy(plan, config, mesh, testing::late_link());
          for (int step = 0; step < 2; ++step) {
            strategy.grads->set_backward_order(order);
            for (int64_t micro = 0; micro < accumulation; ++micro)
              run_backward(plan, *strategy.grads, nullptr);
            strategy.grads->finish();
            strategy.grads->reset();
          }
          const GradReducer& grads = *strategy.grads;
          const GradientOffload& gradient_offload = *strategy.shard_stores.gradient_offload;
          CHECK(memory.gradients ==
                TierBytes{.device = grads.persistent_bytes() - grads.buffer_bytes(),
                          .pinned = gradient_offload.shard_bytes()});
          CHECK(memory.gradient_buffers == TierBytes{.device = grads.buffer_bytes(),
                                                     .pinned = gradient_offload.buffer_bytes()});
        }
      }
    }
  }
}

}  // namespace zeroth::zero::gradient_offload_step_test
