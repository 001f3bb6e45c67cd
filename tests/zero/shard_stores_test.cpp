#include "zero/shard_stores.h"

#include <doctest/doctest.h>

#include <set>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"
#include "zero/offload_plan.h"
#include "zero/unit.h"

namespace zeroth::zero::shard_stores_test {
namespace {

using configs::OffloadDevice;

configs::Config in_files(const TempFolder& directory) {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = OffloadDevice::kNvme;
  config.zero.offload_optimizer.nvme_path = directory.path();
  config.zero.offload_param.device = OffloadDevice::kNvme;
  config.zero.offload_param.nvme_path = directory.path();
  config.zero.offload_param.max_in_cpu_elements = 0;
  return config;
}

// Of one rank that releases every unit.
UnitPlan released_units(const model::Blocks& blocks) {
  UnitPlan plan = plan_units(blocks, 1);
  for (Unit& unit : plan.units) unit.gather_policy = GatherPolicy::kBeforeUse;
  return plan;
}

template <typename Look>
void with_stores(const configs::Config& config, Look&& look) {
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const UnitPlan units = released_units(testing::make_chain());
    look(make_shard_stores(plan_offload(units, config, /*separate_device=*/false), config, *mesh));
  });
}

size_t count_stores(const ShardStores& made) {
  std::set<offload::ShardStore*> stores;
  for (const OptimizerPlacement& place : made.updates) stores.insert(place.states);
  return stores.size();
}

}  // namespace

TEST_CASE("without offload no parameter has a store of its own") {
  with_stores({}, [](const ShardStores& stores) {
    CHECK(count_stores(stores) == 1);
    for (const offload::ShardStore* store : stores.params) CHECK(store == nullptr);
    CHECK(stores.traffic().bytes_read == 0);
    CHECK(stores.notes().empty());
  });
}

TEST_CASE(
    "what rests in files has stores of its own; ratio and max_in_cpu keep some of it in memory") {
  const TempFolder directory;
  configs::Config config = in_files(directory);
  with_stores(config, [](const ShardStores& stores) {
    CHECK(count_stores(stores) == 1);
    for (const offload::ShardStore* store : stores.params) CHECK(store == stores.params.front());
    CHECK(stores.params.front() != nullptr);
  });
  config.zero.offload_optimizer.ratio = 0.5;
  config.zero.offload_param.max_in_cpu_elements = 150;  // the embedding's 19 x 6
  with_stores(config, [](const ShardStores& stores) {
    CHECK(count_stores(stores) == 2);
    CHECK(stores.params.front() == nullptr);
    CHECK(stores.params.back() != nullptr);
  });
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("only what copies touch is page-locked: not what the host alone updates") {
  struct Agreeing final : device::PagePinner {
    std::string pin(std::span<std::byte>) override { return ""; }
    void unpin(std::span<std::byte>) noexcept override {}
  };
  using Step = configs::OffloadOptimizerConfig::UpdateDevice;
  const TempFolder directory;
  const comm::DeviceMesh mesh(testing::kFakeDevice, comm::make_solo_group());
  const UnitPlan units = released_units(testing::make_chain());
  for (const OffloadDevice place : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
    for (const Step step : {Step::kCpu, Step::kGpu}) {
      configs::Config config = in_files(directory);
      config.zero.offload_optimizer.device = place;
      config.zero.offload_optimizer.step = step;
      config.zero.offload_param.device = OffloadDevice::kNone;
      const auto link = std::make_shared<device::HostLink>(
          device::HostLink{device::HostMemory(std::make_shared<Agreeing>()),
                           std::make_unique<testing::LateCopies>()});
      const OffloadPlan rest = plan_offload(units, config, /*separate_device=*/true);
      const ShardStores stores = make_shard_stores(rest, config, mesh, link);
      const OptimizerPlacement& updates = stores.updates.front();
      const size_t shard = updates.states->add(100);
      updates.states->acquire({shard, 0, 100}, updates.device, offload::Access::kReadWrite);
      CHECK((link->memory.pinned_bytes() > 0) == (step == Step::kGpu));
    }
  }
}

}  // namespace zeroth::zero::shard_stores_test
