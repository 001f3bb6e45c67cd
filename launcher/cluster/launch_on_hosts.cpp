#include "launcher/cluster/launch_on_hosts.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <utility>

#include "base/process_limits.h"
#include "launcher/cluster/own_addresses.h"
#include "launcher/cluster/remote_ranks.h"

namespace zeroth::launcher {
namespace {

// What the launcher has open at most, with room: strangers at its port among them.
constexpr int kOpenFiles = 128, kOpenFilesOfHost = 8;
constexpr std::chrono::milliseconds kStartersEnd{5'000};

std::string find_master(const HostsLaunch& launch, const Gathered& gathered) {
  if (!launch.master_addr.empty()) return launch.master_addr;
  std::vector<boost::asio::ip::address> of_agents, of_launcher;
  for (const Gathered::Host& host : gathered.hosts) {
    of_agents.push_back(host.agent->channel().remote_address());
    of_launcher.push_back(host.agent->channel().local_address());
  }
  return choose_master(of_agents, of_launcher);
}

std::vector<RemoteHost> with_ranks(const HostsLaunch& launch, const Gathered& gathered) {
  std::vector<RemoteHost> hosts;
  int first_rank = 0;
  for (size_t i = 0; i < gathered.hosts.size(); ++i) {
    const HostSlots& slots = launch.gathering.hosts[i];
    const int num_ranks = static_cast<int>(slots.slots.size());
    hosts.push_back({slots.host, first_rank, num_ranks, gathered.hosts[i].agent});
    first_rank += num_ranks;
  }
  return hosts;
}

std::vector<Start> make_starts(const HostsLaunch& launch, const Gathered& gathered,
                               const std::vector<RemoteHost>& hosts) {
  Start start;
  start.world_size = hosts.back().first_rank + hosts.back().num_ranks;
  start.num_hosts = static_cast<int>(hosts.size());
  start.master_addr = find_master(launch, gathered);
  start.master_port = gathered.hosts.front().ready.master_port;
  start.launch_time = launch.launch_time;
  std::vector<Start> starts;
  for (const RemoteHost& host : hosts) {
    start.host = static_cast<int>(starts.size());
    start.first_rank = host.first_rank;
    start.terminal_columns = host.first_rank == 0 ? launch.terminal_columns : std::nullopt;
    starts.push_back(start);
  }
  return starts;
}

}  // namespace

JobOutcome launch_on_hosts(const HostsLaunch& launch) try {
  require_open_files(kOpenFiles +
                     kOpenFilesOfHost * static_cast<int>(launch.gathering.hosts.size()));
  boost::asio::io_context io;
  Gathering gathering(io, launch.gathering);
  const Gathered gathered = gathering.run();
  for (size_t i = 0; i < gathered.hosts.size(); ++i)
    for (const std::string& note : gathered.hosts[i].ready.notes)
      launch.gathering.say(fmt::format("host {}: {}", launch.gathering.hosts[i].host, note));
  const std::vector<RemoteHost> hosts = with_ranks(launch, gathered);
  const std::vector<Start> starts = make_starts(launch, gathered, hosts);
  RemoteRanks ranks(io, hosts);
  JobShellOptions options = launch.shell;
  options.first_rank = 0;
  options.num_ranks = options.world_size = starts.front().world_size;
  JobShell shell(io, ranks, options);
  gathering.set_say([&shell](const std::string& line) { shell.say(line); });
  ranks.start(starts, shell);
  JobOutcome outcome = shell.run();
  for (const Gathered::Host& host : gathered.hosts) host.agent->close();
  gathering.end_starters(kStartersEnd);
  return outcome;
} catch (const GatheringStopped& stopped) {
  return {128 + stopped.signal(), stopped.what()};
}

}  // namespace zeroth::launcher
