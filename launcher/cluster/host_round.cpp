#include "launcher/cluster/host_round.h"

#include <fmt/format.h>

#include <utility>

#include "base/complaints.h"
#include "launcher/cluster/own_addresses.h"
#include "launcher/machine/machine.h"

namespace zeroth::launcher {

HostRound::HostRound(boost::asio::io_context& io, const HostsLaunch& launch, Agents& agents,
                     std::vector<int> nodes, const Round& round, const OnLeaving& on_leaving)
    : launch_(launch),
      agents_(agents),
      nodes_(std::move(nodes)),
      round_(round),
      hosts_(with_ranks()),
      ranks_(io, hosts_, launch.elastic.has_value(), by_node(on_leaving)) {
  JobShellOptions options = launch.shell;
  options.first_rank = 0;
  options.num_ranks = options.world_size = num_ranks();
  if (launch.rank_logs) options.rank_logs = launch.rank_logs(num_ranks());
  shell_ = std::make_unique<JobShell>(io, ranks_, options);
}

HostRound::~HostRound() {
  agents_.set_say(launch_.agents.say);  // no longer by the shell
}

int HostRound::num_ranks() const {
  return hosts_.back().first_rank + hosts_.back().num_ranks;
}

JobOutcome HostRound::run() {
  if (round_.number == 0) tell_notes();
  for (const std::string& text : agents_.roll().one_machine(nodes_)) agents_.warn_once(text);
  agents_.set_say([this](const std::string& line) { shell_->say(line); });
  ranks_.start(make_starts(), *shell_);
  return shell_->run();
}

void HostRound::tell_notes() const {
  for (const int node : nodes_) {
    const std::vector<std::string>& notes = agents_.roll().ready(node).notes;
    for (size_t i = 0; i < std::min(notes.size(), kMostComplaints); ++i)
      agents_.note(fmt::format("host {}: {}", agents_.host(node).host, notes[i]));
  }
}

std::vector<RemoteHost> HostRound::with_ranks() const {
  std::vector<RemoteHost> hosts;
  int first_rank = 0;
  for (const int node : nodes_) {
    const HostSlots& host = agents_.host(node);
    const int num_ranks = static_cast<int>(host.slots.size());
    hosts.push_back({host.host, first_rank, num_ranks, agents_.agent(node)});
    first_rank += num_ranks;
  }
  return hosts;
}

RemoteRanks::OnLeaving HostRound::by_node(const OnLeaving& on_leaving) const {
  if (!on_leaving) return {};
  return [this, on_leaving](const std::vector<size_t>& hosts, int signal) {
    std::vector<int> nodes;
    for (const size_t host : hosts) nodes.push_back(nodes_.at(host));
    return on_leaving(nodes, signal);
  };
}

std::vector<Start> HostRound::make_starts() const {
  Start start;
  start.world_size = num_ranks();
  start.num_hosts = static_cast<int>(hosts_.size());
  start.master_addr = find_master();
  start.master_port = agents_.roll().ready(nodes_.front()).master_port;
  start.launch_time = round_.number == 0 ? launch_.launch_time : seconds_since_epoch();
  start.round = round_;
  std::vector<Start> starts;
  for (const RemoteHost& host : hosts_) {
    start.host = static_cast<int>(starts.size());
    start.first_rank = host.first_rank;
    start.terminal_columns = host.first_rank == 0 ? launch_.terminal_columns : std::nullopt;
    starts.push_back(start);
  }
  return starts;
}

std::string HostRound::find_master() const {
  if (!launch_.master_addr.empty()) return launch_.master_addr;
  std::vector<boost::asio::ip::address> of_agents, of_launcher;
  for (const RemoteHost& host : hosts_) {
    of_agents.push_back(host.agent->channel().remote_address());
    of_launcher.push_back(host.agent->channel().local_address());
  }
  return choose_master(of_agents, of_launcher);
}

}  // namespace zeroth::launcher
