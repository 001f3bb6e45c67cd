// Groups over NCCL, as far as they need nothing of CUDA: the NCCL simulation makes its groups here,
// too. Part of the GPU libraries, not of the programs.
#include "comm/groups/nccl.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <utility>

#include "base/error.h"
#include "comm/collective_info.h"
#include "comm/groups/c10d_group.h"
#include "comm/groups/members.h"
#include "comm/groups/rank_table.h"
#include "comm/groups/watchdog.h"

namespace zeroth::comm {
namespace {

// A rank of the world, as its groups are made.
struct World {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  NcclOptions options;
  NcclBackend make_backend;
};

// Makes the group of this rank's part. Collective over all parts.
std::unique_ptr<Group> connect(const World& world, const Partition& partition) {
  const auto [rank, size, members] = group_member(partition, world.rank);
  const auto table = world.options.tables ? world.options.tables(partition) : nullptr;
  if (size == 1 && partition.parts.size() > 1) return make_solo_group();
  const torch::Device device = c10::impl::VirtualGuardImpl(torch::kCUDA).getDevice();
  const auto watchdog = std::make_shared<Watchdog>(
      world.options.timeout, world.options.on_hang,
      [device] { c10::impl::VirtualGuardImpl(device.type()).setDevice(device); });
  const std::string who =
      fmt::format("{}{}: cannot connect over NCCL", members.rank_name(rank, size),
                  members.ranks.empty() ? "" : " in group " + members.name());
  const auto guard = watchdog->guard([=](const std::string& why) {
    return fmt::format("{}: {}; {}", who, why,
                       table ? table->explain(0, {}) : "its peers are not known");
  });
  try {
    const auto prefix = fmt::format("{}/{}", partition.name, members.global_rank(0));
    auto backend = world.make_backend({c10::make_intrusive<c10d::PrefixStore>(prefix, world.store),
                                       rank, size, device, world.options.timeout});
    C10dGroupOptions group{
        .members = members, .table = table, .watchdog = watchdog, .reports = world.options.reports};
    if (members.ranks.empty())
      group.split = [world](const Partition& parts) { return connect(world, parts); };
    return make_c10d_group(std::move(backend), std::move(group));
  } catch (const std::exception& cause) {
    throw Error("{}: {}", who, error_message(cause));
  }
}

}  // namespace

std::unique_ptr<Group> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, const NcclOptions& options,
                                       const NcclBackend& make_backend) {
  return connect({store, rank, options, make_backend}, world_partition(size));
}

}  // namespace zeroth::comm
