// The only source that includes Gloo's own headers.
#include "comm/groups/gloo_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "comm/collective_info.h"

namespace zeroth::comm {
namespace {

std::shared_ptr<gloo::transport::Device> make_device(const GlooOptions& options) {
  using Gloo = c10d::ProcessGroupGloo;
  if (!options.interface.empty()) return Gloo::createDeviceForInterface(options.interface);
  if (!options.address.empty()) return Gloo::createDeviceForHostname(options.address);
  return Gloo::createDefaultDevice();
}

std::string describe_endpoint(const GlooOptions& options) {
  if (!options.interface.empty()) return "interface " + options.interface;
  return options.address.empty() ? "default address" : options.address;
}

std::unique_ptr<Group> split_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                  GlooOptions options, const Partition& partition) {
  const GroupMember member = group_member(partition, rank);
  if (member.size == 1) return make_solo_group();
  options.group.members = member.members;
  options.group.table = nullptr;
  const auto prefix = fmt::format("{}/{}", partition.name, member.members.global_rank(0));
  return make_gloo_group(c10::make_intrusive<c10d::PrefixStore>(prefix, store), member.rank,
                         member.size, options);
}

}  // namespace

std::unique_ptr<C10dGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, const GlooOptions& options) {
  try {
    auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
    settings->devices.push_back(make_device(options));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, settings);
    C10dGroupOptions group = options.group;
    if (group.members.ranks.empty() && !group.progress) {
      group.split = [store, rank, options](const Partition& partition) {
        return split_gloo(store, rank, options, partition);
      };
    }
    return make_c10d_group(backend, std::move(group));
  } catch (const std::exception& cause) {
    throw Error("{}: cannot connect group {} over Gloo ({}): {}",
                options.group.members.rank_name(rank, size), options.group.members.name(),
                describe_endpoint(options), error_message(cause));
  }
}

}  // namespace zeroth::comm
