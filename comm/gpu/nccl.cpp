// What libzeroth_gpu.so knows of NCCL.
#include "comm/nccl.h"

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "comm/c10d_group.h"
#include "comm/call.h"
#include "comm/members.h"

namespace zeroth::comm {
namespace {

// Our watchdog names block and ranks, and does not count time in which the job is suspended. c10d's
// own, which kills with a stack trace, counts it, and so must never come first.
constexpr std::chrono::hours kBackstop{24 * 365};

// A rank of the world, as groups of it are made.
struct World {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  NcclOptions options;
};

// The group of this rank's part. Collective over all parts.
std::unique_ptr<Group> connect(const World& world, const Partition& partition) {
  const auto [rank, size, members] = place_in(partition, world.rank);
  const auto table = world.options.tables ? world.options.tables(partition) : nullptr;
  if (size == 1 && partition.parts.size() > 1) return make_solo_group();
  const c10::DeviceIndex device = c10::cuda::current_device();
  const auto watchdog = std::make_shared<Watchdog>(world.options.timeout, world.options.on_stuck,
                                                   [device] { c10::cuda::set_device(device); });
  const std::string who = fmt::format("{}{}: cannot connect over NCCL", members.name_of(rank, size),
                                      members.ranks.empty() ? "" : " in group " + members.name());
  const auto guard = watchdog->guard([=](const std::string& why) {
    return fmt::format("{}: {}; {}", who, why,
                       table ? table->explain(0, {}) : "its peers are not known");
  });
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = world.options.timeout + kBackstop;
    const auto prefix = fmt::format("{}/{}", partition.name, members.number(0));
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>(prefix, world.store), rank, size, options);
    backend->eagerConnectSingleDevice(torch::Device(torch::kCUDA, device));
    C10dGroupOptions group{.members = members, .table = table, .watchdog = watchdog};
    if (members.ranks.empty())
      group.split = [world](const Partition& parts) { return connect(world, parts); };
    return make_c10d_group(backend, std::move(group));
  } catch (const std::exception& cause) {
    throw Error("{}: {}", who, words_of(cause));
  }
}

class CudaNccl final : public Nccl {
 public:
  int version() const override {
    int version = 0;
    ncclGetVersion(&version);
    return version;
  }

  std::unique_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                    int size, const NcclOptions& options) override {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return connect({store, rank, options}, {Members().group, {all}});
  }
};

}  // namespace
}  // namespace zeroth::comm

extern "C" __attribute__((visibility("default"))) zeroth::comm::Nccl* zeroth_nccl_entry() {
  static zeroth::comm::CudaNccl nccl;
  return &nccl;
}
