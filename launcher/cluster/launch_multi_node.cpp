#include "launcher/cluster/launch_multi_node.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/random_bytes.h"
#include "base/machine/signals.h"
#include "base/machine/timer.h"
#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/multi_node_attempt.h"
#include "launcher/run/program_arguments.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxReservedNodes =
    64;  // nodes that may join, for which files are reserved at the start
constexpr std::chrono::milliseconds kTick{200};
constexpr size_t kTokenBytes = 8;

// NodeRendezvous gathers all nodes of a run, each of which must be able to run its ranks.
class NodeRendezvous {
 public:
  NodeRendezvous(boost::asio::io_context& io, const MultiNodeConfig& config)
      : io_(io),
        signals_(io),
        agents_(io, config.agents, config.hosts, [this] { check(); }),
        limit_(config.answer_timeout),
        ticks_(io) {
    for (const int signal : termination_signals()) signals_.add(signal);
  }

  // Runs `io` until all nodes are ready. Returns 0, or the one of termination_signals() that has
  // ended it. Throws an Error that names all nodes that are not ready and why. After a signal or an
  // Error no agent is left, nor a secret on a node.
  int run();
  AgentPool& agents() { return agents_; }

 private:
  void check() {
    if (agents_.readiness().all_connected()) agents_.stop_accepting();
    if (agents_.readiness().is_complete() || agents_.has_setup_failed()) io_.stop();
  }
  void tick() {
    ticks_.start(kTick, [this] {
      waited_ += kTick;
      if (slow_.due(waited_))
        agents_.log_note(agents_.readiness().describe_waiting(waited_, limit_));
      tick();
    });
  }

  boost::asio::io_context& io_;
  boost::asio::signal_set signals_;  // constructed before agents are started
  AgentPool agents_;
  std::chrono::milliseconds limit_;  // for all nodes to answer
  SuspendableTimer ticks_;
  std::chrono::milliseconds waited_{0};
  SlowWait slow_;
};

int NodeRendezvous::run() {
  agents_.start();
  SuspendableTimer timer(io_);
  timer.start(limit_, [this] { agents_.give_up(describe_timeout(limit_)); });
  tick();
  int received = 0;
  signals_.async_wait([&](boost::system::error_code error, int signal) {
    if (error) return;
    received = signal;
    io_.stop();
  });
  check();
  io_.run();
  io_.restart();
  timer.cancel();
  ticks_.cancel();
  signals_.cancel();
  signals_.clear();
  agents_.ignore_launch_exits();
  agents_.stop_accepting();
  agents_.warn_of_refused();
  const std::string error = agents_.readiness().error();
  if (received != 0 || !error.empty()) {
    agents_.shutdown();
    if (received == 0) throw Error("{}", error);
    return received;
  }
  agents_.close_unidentified();
  return 0;
}

JobOutcome run_once(const MultiNodeConfig& config) {
  boost::asio::io_context io;
  NodeRendezvous rendezvous(io, config);
  if (const int signal = rendezvous.run(); signal != 0) return stopped_by(signal);
  AgentPool& agents = rendezvous.agents();
  std::vector<int> nodes(config.hosts.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  JobOutcome outcome = MultiNodeAttempt(io, config, agents, nodes, RestartAttempt{}).run();
  for (const int node : nodes) agents.agent(node)->close();
  agents.end_launch_processes();
  return outcome;
}

RemoteJob make_remote_job(const LaunchOptions& options, const ClusterPlan& plan) {
  RemoteJob job;
  job.command = options.command;
  job.working_directory = std::filesystem::current_path();
  job.env = plan.environment;
  job.share_gpus = options.share_gpus;
  job.oversubscribe = options.oversubscribe;
  job.bind_cores = options.bind_cores;
  job.bind_core_list = options.bind_core_list;
  job.timeout_seconds = options.timeout_seconds;
  job.master_port = options.master_port;
  return job;
}

ElasticConfig make_elastic_config(const LaunchOptions& options, const ClusterPlan& plan) {
  ElasticConfig elastic;
  elastic.hosts = *plan.elastic;
  elastic.model_parallel = model_parallel_size(options.command);
  elastic.expected_joiners = plan.num_joiners;
  elastic.max_restarts = options.elastic.effective_max_restarts();
  elastic.join_timeout = std::chrono::seconds(options.elastic.wait_seconds);
  if (const auto code = options.elastic.effective_requeue_code()) elastic.requeue_code = *code;
  elastic.newest_checkpoint = [command = options.command] { return newest_checkpoint(command); };
  if (plan.watches_hostfile) elastic.poll_hosts = [options] { return read_hosts(options); };
  return elastic;
}

}  // namespace

JobOutcome launch_multi_node(const MultiNodeConfig& config) {
  const int max_nodes = config.elastic ? std::min(config.elastic->hosts.max, kMaxReservedNodes) : 0;
  raise_open_file_limit(
      multi_node_open_files(std::max(static_cast<int>(config.hosts.size()), max_nodes)));
  return config.elastic ? run_elastic(config) : run_once(config);
}

MultiNodeConfig make_multi_node_config(const LaunchOptions& options, const ClusterPlan& plan) {
  MultiNodeConfig config;
  config.hosts = plan.agents.hosts;
  config.agents.quiet = options.verbosity < Verbosity::kNotes;
  config.agents.job = make_remote_job(options, plan);
  config.agents.make_commands = [request = plan.agents, backend = plan.backend](
                                    const std::vector<HostSlots>& hosts,
                                    const std::string& launcher,
                                    const std::string& secret) mutable {
    request.hosts = hosts;
    request.launcher = launcher;
    request.secret = secret;
    request.token = random_hex(kTokenBytes);
    return make_agent_commands(*backend, request);
  };
  config.master_addr = options.master_addr.value_or("");
  if (!plan.elastic) return config;
  config.elastic = make_elastic_config(options, plan);
  config.agents.job.requeue_code = config.elastic->requeue_code;
  config.agents.join_port = plan.join_port;
  config.agents.join_address = plan.join_address.value_or("");
  config.master_addr.clear();  // rank 0's node changes between attempts
  if (plan.join_port) config.agents.job.master_port.reset();
  return config;
}

}  // namespace zeroth::launcher
