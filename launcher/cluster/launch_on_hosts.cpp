#include "launcher/cluster/launch_on_hosts.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <numeric>

#include "base/process_limits.h"
#include "launcher/cluster/elastic_run.h"
#include "launcher/cluster/gathering.h"
#include "launcher/cluster/host_round.h"

namespace zeroth::launcher {
namespace {

// What the launcher has open at most, with room: strangers at its port among them.
constexpr int kOpenFiles = 128, kOpenFilesOfHost = 8;
constexpr int kFewHosts = 64;  // that may come, for which there is room from the start
constexpr std::chrono::milliseconds kStartersEnd{5'000};

JobOutcome run_once(const HostsLaunch& launch) try {
  boost::asio::io_context io;
  Gathering gathering(io, launch.agents, launch.hosts, launch.limit);
  Agents& agents = gathering.run();
  std::vector<int> nodes(launch.hosts.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  JobOutcome outcome = HostRound(io, launch, agents, nodes, Round{}).run();
  for (const int node : nodes) agents.agent(node)->close();
  agents.end_starters(kStartersEnd);
  return outcome;
} catch (const GatheringStopped& stopped) {
  return {.status = 128 + stopped.signal(),
          .message = stopped.what(),
          .end = JobEnd::kStopped,
          .signal = stopped.signal()};
}

}  // namespace

JobOutcome launch_on_hosts(const HostsLaunch& launch) {
  const int most = launch.elastic ? std::min(launch.elastic->hosts.max, kFewHosts) : 0;
  require_open_files(kOpenFiles +
                     kOpenFilesOfHost * std::max(static_cast<int>(launch.hosts.size()), most));
  return launch.elastic ? run_elastic(launch) : run_once(launch);
}

}  // namespace zeroth::launcher
