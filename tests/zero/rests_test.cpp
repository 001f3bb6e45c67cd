#include "zero/rests.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::zero {
namespace {

using configs::RestingPlace;
using Kind = configs::OptimizerConfig::Kind;

configs::Config in_files(const TempFolder& folder) {
  configs::Config config;
  config.precision = configs::Precision::kBf16;
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = RestingPlace::kNvme;
  config.zero.offload_optimizer.nvme_path = folder.path();
  config.zero.offload_param.device = RestingPlace::kNvme;
  config.zero.offload_param.nvme_path = folder.path();
  config.zero.offload_param.max_in_cpu_elements = 0;
  return config;
}

// What `look` sees of the chain's resting places on one rank that releases every unit.
UnitPlan released_units(const model::Blocks& blocks) {
  UnitPlan plan = plan_units(blocks, 1);
  for (Unit& unit : plan.units) unit.retention = Retention::kRelease;
  return plan;
}

template <typename Look>
void with_rests(const configs::Config& config, Look&& look) {
  testing::run_ranks(1, [&](std::shared_ptr<comm::Mesh> mesh) {
    const model::Blocks blocks = testing::make_chain();
    look(make_rests(released_units(blocks), config, *mesh));
  });
}

size_t count_stores(const Rests& rests) {
  std::set<offload::ShardStore*> stores;
  for (const UpdatePlace& place : rests.updates) stores.insert(place.states);
  return stores.size();
}

}  // namespace

TEST_CASE(
    "tiles of a file are at most sub_group_size, on its grid, and no larger than its shards") {
  configs::ZeroConfig zero;
  zero.offload_optimizer.buffer_count = 5;
  const FileTiles usual = optimizer_tiles(zero, int64_t{1} << 30, 3);
  CHECK(usual.elements == int64_t{4} << 20);
  CHECK(usual.buffers == 15);
  CHECK(usual.buffer_bytes == 4 * usual.elements);
  zero.sub_group_size_elements = 3 * offload::kTileGrid + 1;
  CHECK(optimizer_tiles(zero, int64_t{1} << 30, 3).elements == 3 * offload::kTileGrid);
  zero.sub_group_size_elements = 1;
  CHECK(optimizer_tiles(zero, int64_t{1} << 30, 3).elements == offload::kTileGrid);
  CHECK(optimizer_tiles(zero, 100, 2).buffer_bytes == offload::kTileGrid);
}

TEST_CASE("a buffer that cannot hold the largest shard of parameters names the smallest that can") {
  configs::OffloadParamConfig config;
  config.buffer_size_elements = 1'000;
  CHECK(parameter_tiles(config, 1'000, 2).buffer_bytes == offload::kTileGrid);
  std::string message;
  try {
    parameter_tiles(config, 1'001, 2);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("offload_param.buffer_size is 1000") != std::string::npos);
  CHECK(message.find("smallest value that works is 1001") != std::string::npos);
}

TEST_CASE("without offload nothing waits, no parameter has a store of its own") {
  with_rests({}, [](const Rests& rests) {
    CHECK_FALSE(rests.update_before_use);
    CHECK(count_stores(rests) == 1);
    for (const offload::ShardStore* store : rests.params) CHECK(store == nullptr);
    CHECK(rests.traffic().bytes_read == 0);
    CHECK(rests.notes().empty());
  });
}

TEST_CASE("what rests in files waits for its use; ratio and max_in_cpu keep some of it in memory") {
  const TempFolder folder;
  configs::Config config = in_files(folder);
  with_rests(config, [](const Rests& rests) {
    CHECK(rests.update_before_use);
    CHECK(count_stores(rests) == 1);
    for (const offload::ShardStore* store : rests.params) CHECK(store == rests.params.front());
    CHECK(rests.params.front() != nullptr);
    CHECK(rests.max_param_reads == 4);
  });
  config.zero.offload_optimizer.device = RestingPlace::kDevice;
  with_rests(config, [](const Rests& rests) { CHECK(rests.update_before_use); });
  config.zero.offload_optimizer.device = RestingPlace::kNvme;
  config.zero.offload_optimizer.ratio = 0.5;
  config.zero.offload_param.max_in_cpu_elements = 150;  // the embedding's 19 x 6
  with_rests(config, [](const Rests& rests) {
    CHECK(count_stores(rests) == 2);
    CHECK(rests.params.front() == nullptr);
    CHECK(rests.params.back() != nullptr);
  });
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("only what copies touch is page-locked: not what the host alone updates") {
  struct Agreeing final : device::PageLocker {
    std::string lock(std::span<std::byte>) override { return ""; }
    void unlock(std::span<std::byte>) noexcept override {}
  };
  using Step = configs::OffloadOptimizerConfig::Step;
  const TempFolder folder;
  const comm::Mesh mesh(testing::kFakeDevice, comm::make_solo_group());
  const UnitPlan plan = released_units(testing::make_chain());
  for (const RestingPlace place : {RestingPlace::kCpu, RestingPlace::kNvme}) {
    for (const Step step : {Step::kCpu, Step::kGpu}) {
      configs::Config config = in_files(folder);
      config.zero.offload_optimizer.device = place;
      config.zero.offload_optimizer.step = step;
      config.zero.offload_param.device = RestingPlace::kDevice;
      const auto link = std::make_shared<device::HostLink>(
          device::HostLink{device::HostMemory(std::make_shared<Agreeing>()),
                           std::make_unique<testing::LateCopies>()});
      const Rests rests = make_rests(plan, config, mesh, link);
      const UpdatePlace& updates = rests.updates.front();
      const size_t shard = updates.states->add(100);
      updates.states->borrow({shard, 0, 100}, updates.device, offload::Access::kReadWrite);
      CHECK((link->memory.locked_bytes() > 0) == (step == Step::kGpu));
    }
  }
}

TEST_CASE("SGD without momentum has no states: in fp32 there is no file") {
  const TempFolder folder;
  configs::Config config = in_files(folder);
  config.zero.offload_param.device = RestingPlace::kDevice;
  config.precision = configs::Precision::kFp32;
  config.optimizer.kind = Kind::kSgd;
  with_rests(config, [](const Rests& rests) { CHECK_FALSE(rests.update_before_use); });
  config.optimizer.momentum = 0.9;
  with_rests(config, [](const Rests& rests) { CHECK(rests.update_before_use); });
}

}  // namespace zeroth::zero
