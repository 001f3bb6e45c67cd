// The only source that sees Gloo's own headers.
#include "comm/gloo_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/error.h"
#include "comm/c10d_group.h"
#include "comm/call.h"

namespace zeroth::comm {

std::unique_ptr<Group> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, const GlooOptions& options) {
  try {
    auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
    settings->devices.push_back(
        options.address.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                : c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, settings);
    return make_c10d_group(backend, {.name = options.name, .table = options.table});
  } catch (const std::exception& cause) {
    throw Error("rank {} of {}: cannot connect group '{}' over Gloo ({}): {}", rank, size,
                options.name, options.address.empty() ? "default address" : options.address,
                words_of(cause));
  }
}

}  // namespace zeroth::comm
