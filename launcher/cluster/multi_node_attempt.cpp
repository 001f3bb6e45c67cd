#include "launcher/cluster/multi_node_attempt.h"

#include <fmt/format.h>

#include <utility>

#include "base/text/diagnostics.h"
#include "launcher/cluster/rendezvous_state.h"
#include "launcher/machine/local_addresses.h"
#include "launcher/machine/machine.h"

namespace zeroth::launcher {

MultiNodeAttempt::MultiNodeAttempt(boost::asio::io_context& io, const MultiNodeConfig& config,
                                   AgentPool& agents, std::vector<int> nodes,
                                   const RestartAttempt& attempt, RemoteRanks::OnLeaving on_leaving)
    : config_(config),
      agents_(agents),
      nodes_(std::move(nodes)),
      attempt_(attempt),
      hosts_(assign_hosts()),
      ranks_(io, hosts_, config.elastic.has_value(), std::move(on_leaving)) {
  JobRunnerOptions options = config.runner;
  options.first_rank = 0;
  options.num_ranks = options.world_size = num_ranks();
  if (config.rank_logs) options.rank_logs = config.rank_logs(num_ranks());
  runner_ = std::make_unique<JobRunner>(io, ranks_, options);
}

MultiNodeAttempt::~MultiNodeAttempt() {
  agents_.set_log(config_.agents.log);  // instead of the JobRunner's
}

int MultiNodeAttempt::num_ranks() const {
  return hosts_.back().first_rank + hosts_.back().num_ranks;
}

JobOutcome MultiNodeAttempt::run() {
  if (attempt_.index == 0) log_notes();
  for (const std::string& text : agents_.readiness().same_machine_notes(nodes_))
    agents_.warn_once(text);
  agents_.set_log([this](const std::string& line) { runner_->log(line); });
  if (num_slots_ > num_ranks())
    agents_.log_note(
        describe_spares(num_slots_ - num_ranks(), num_slots_, config_.elastic->model_parallel));
  ranks_.start(make_start(), *runner_);
  return runner_->run();
}

void MultiNodeAttempt::log_notes() const {
  for (const int node : nodes_) {
    const std::vector<std::string>& notes = agents_.readiness().ready(node).notes;
    for (size_t i = 0; i < std::min(notes.size(), kMaxErrors); ++i)
      agents_.log_note(fmt::format("host {}: {}", agents_.host(node).host, notes[i]));
  }
}

std::vector<RemoteNode> MultiNodeAttempt::assign_hosts() {
  std::vector<int> ranks = agents_.num_slots(nodes_);
  num_slots_ = sum_of(ranks);
  if (config_.elastic) ranks = assign_ranks(ranks, config_.elastic->model_parallel);
  std::vector<RemoteNode> hosts;
  int first_rank = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (ranks[i] == 0) continue;
    const int node = nodes_[i];
    hosts.push_back({node, agents_.host(node).host, first_rank, ranks[i], agents_.agent(node)});
    first_rank += ranks[i];
  }
  std::erase_if(nodes_, [&, i = size_t{0}](int) mutable { return ranks[i++] == 0; });
  return hosts;
}

StartRanks MultiNodeAttempt::make_start() const {
  StartRanks start;
  start.world_size = num_ranks();
  start.num_nodes = static_cast<int>(hosts_.size());
  start.master_addr = find_master_addr();
  start.master_port = agents_.readiness().ready(nodes_.front()).master_port;
  start.launch_time = attempt_.index == 0 ? config_.launch_time : seconds_since_epoch();
  start.terminal_columns = config_.terminal_columns;
  start.attempt = attempt_;
  return start;
}

std::string MultiNodeAttempt::find_master_addr() const {
  if (!config_.master_addr.empty()) return config_.master_addr;
  std::vector<boost::asio::ip::address> agent_addresses, launcher_addresses;
  for (const RemoteNode& host : hosts_) {
    agent_addresses.push_back(host.agent->channel().remote_address());
    launcher_addresses.push_back(host.agent->channel().local_address());
  }
  return choose_master_addr(agent_addresses, launcher_addresses);
}

}  // namespace zeroth::launcher
