#include "launcher/cluster/launch_multi_node.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <numeric>

#include "base/machine/process_limits.h"
#include "launcher/cluster/elastic_run.h"
#include "launcher/cluster/multi_node_attempt.h"
#include "launcher/cluster/node_rendezvous.h"

namespace zeroth::launcher {
namespace {

// Maximum number of the launcher's open files, with a reserve for unauthenticated connections.
constexpr int kOpenFiles = 128, kOpenFilesPerNode = 8;
constexpr int kMaxReservedNodes =
    64;  // nodes that may join, for which files are reserved at the start
constexpr std::chrono::milliseconds kLaunchExitLimit{5'000};

JobOutcome run_once(const MultiNodeConfig& config) try {
  boost::asio::io_context io;
  NodeRendezvous rendezvous(io, config.agents, config.hosts, config.answer_timeout);
  AgentPool& agents = rendezvous.run();
  std::vector<int> nodes(config.hosts.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  JobOutcome outcome = MultiNodeAttempt(io, config, agents, nodes, RestartAttempt{}).run();
  for (const int node : nodes) agents.agent(node)->close();
  agents.end_launch_processes(kLaunchExitLimit);
  return outcome;
} catch (const RendezvousInterrupted& stopped) {
  return {.status = 128 + stopped.signal(),
          .message = stopped.what(),
          .end = JobEnd::kStopped,
          .signal = stopped.signal()};
}

}  // namespace

JobOutcome launch_multi_node(const MultiNodeConfig& config) {
  const int max_nodes = config.elastic ? std::min(config.elastic->hosts.max, kMaxReservedNodes) : 0;
  raise_open_file_limit(
      kOpenFiles + kOpenFilesPerNode * std::max(static_cast<int>(config.hosts.size()), max_nodes));
  return config.elastic ? run_elastic(config) : run_once(config);
}

}  // namespace zeroth::launcher
