#include "launcher/cluster/multi_node_config.h"

#include <filesystem>

#include "launcher/run/newest_checkpoint.h"
#include "launcher/transport/authenticated_frames.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kTokenLength = 16;

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
  elastic.expected_joiners = plan.num_joiners;
  elastic.max_restarts = options.elastic.effective_max_restarts();
  elastic.join_timeout = std::chrono::seconds(options.elastic.wait_seconds);
  if (const auto code = options.elastic.effective_requeue_code()) elastic.requeue_code = *code;
  elastic.newest_checkpoint = [command = options.command] { return newest_checkpoint(command); };
  if (plan.watches_hostfile) elastic.poll_hosts = [options] { return read_hosts(options); };
  return elastic;
}

}  // namespace

MultiNodeConfig make_multi_node_config(const LaunchOptions& options, const ClusterPlan& plan) {
  MultiNodeConfig config;
  config.hosts = plan.hosts;
  config.agents.quiet = options.verbosity < Verbosity::kNotes;
  config.agents.job = make_remote_job(options, plan);
  config.agents.make_commands = [request = make_agent_request(options, plan),
                                 backend = plan.backend](const std::vector<HostSlots>& hosts,
                                                         const std::string& launcher,
                                                         const std::string& secret) mutable {
    request.hosts = hosts;
    request.launcher = launcher;
    request.secret = secret;
    request.token = make_secret().substr(0, kTokenLength);
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
