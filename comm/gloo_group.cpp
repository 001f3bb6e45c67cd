// The only source that sees Gloo's own headers.
#include "comm/gloo_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "comm/call.h"

namespace zeroth::comm {
namespace {

std::shared_ptr<gloo::transport::Device> device_of(const GlooOptions& options) {
  using Gloo = c10d::ProcessGroupGloo;
  if (!options.interface.empty()) return Gloo::createDeviceForInterface(options.interface);
  if (!options.address.empty()) return Gloo::createDeviceForHostname(options.address);
  return Gloo::createDefaultDevice();
}

std::string place_of(const GlooOptions& options) {
  if (!options.interface.empty()) return "interface " + options.interface;
  return options.address.empty() ? "default address" : options.address;
}

std::unique_ptr<Group> split_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                  GlooOptions options, const Partition& partition) {
  const Place place = place_in(partition, rank);
  if (place.size == 1) return make_solo_group();
  options.members = place.members;
  options.table = nullptr;
  const auto prefix = fmt::format("{}/{}", partition.name, place.members.number(0));
  return make_gloo_group(c10::make_intrusive<c10d::PrefixStore>(prefix, store), place.rank,
                         place.size, options);
}

}  // namespace

std::unique_ptr<C10dGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, const GlooOptions& options) {
  try {
    auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
    settings->devices.push_back(device_of(options));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, settings);
    C10dGroupOptions settings_of_group{.members = options.members,
                                       .table = options.table,
                                       .progress = options.progress,
                                       .link = options.link};
    if (options.members.ranks.empty() && !options.progress) {
      settings_of_group.split = [store, rank, options](const Partition& partition) {
        return split_gloo(store, rank, options, partition);
      };
    }
    return make_c10d_group(backend, std::move(settings_of_group));
  } catch (const std::exception& cause) {
    throw Error("{}: cannot connect group {} over Gloo ({}): {}",
                options.members.name_of(rank, size), options.members.name(), place_of(options),
                words_of(cause));
  }
}

}  // namespace zeroth::comm
