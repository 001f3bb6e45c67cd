#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

// Names of the operations in the communication logger's output.
constexpr std::array<std::string_view, 5> kOperations = {
    "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "barrier"};

}  // namespace

std::vector<std::string> enabled_services(const CheckedKeys& keys) {
  std::vector<std::string> services;
  for (const char* service : {"wandb", "comet"}) {
    if (keys.get<bool>(fmt::format("{}.enabled", service)).value_or(false)) {
      services.emplace_back(service);
    }
  }
  return services;
}

void check_report(Context& context, const Config& config) {
  for (const std::string& service : enabled_services(context.keys)) {
    warn(context.notes, service,
         "{}: external services are not supported; the curves are lost unless the program writes "
         "them to files, as finetune does",
         service);
  }
  for (const std::string& name : config.comms_logger.prof_ops) {
    if (std::find(kOperations.begin(), kOperations.end(), name) != kOperations.end()) continue;
    warn(context.notes, "comms_logger.prof_ops",
         "comms_logger.prof_ops: unknown operation {}; known: {}", name,
         fmt::join(kOperations, ", "));
  }
}

}  // namespace zeroth::configs
