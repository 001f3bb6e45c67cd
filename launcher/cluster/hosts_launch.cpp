#include "launcher/cluster/hosts_launch.h"

#include <filesystem>

#include "launcher/cluster/seal.h"
#include "launcher/run/committed.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kTokenLength = 16;

RemoteJob job_of(const LaunchOptions& options, const ClusterPlan& plan) {
  RemoteJob job;
  job.command = options.command;
  job.folder = std::filesystem::current_path();
  job.env = plan.environment;
  job.share_gpus = options.share_gpus;
  job.oversubscribe = options.oversubscribe;
  job.bind_cores = options.bind_cores;
  job.bind_core_list = options.bind_core_list;
  job.timeout_seconds = options.timeout_seconds;
  job.master_port = options.master_port;
  return job;
}

ElasticPlan elastic_plan(const LaunchOptions& options, const ClusterPlan& plan) {
  ElasticPlan elastic;
  elastic.hosts = *plan.elastic;
  elastic.expected = plan.joiners;
  elastic.max_restarts = options.elastic.restarts();
  elastic.wait = std::chrono::seconds(options.elastic.wait_seconds);
  if (const auto code = options.elastic.code_to_requeue()) elastic.requeue_code = *code;
  elastic.newest_checkpoint = [command = options.command] { return newest_checkpoint(command); };
  if (plan.reads_hostfile) elastic.look_for_hosts = [options] { return hosts_of_file(options); };
  return elastic;
}

}  // namespace

HostsLaunch hosts_launch(const LaunchOptions& options, const ClusterPlan& plan) {
  HostsLaunch launch;
  launch.hosts = plan.hosts;
  launch.agents.quiet = options.verbosity < Verbosity::kNotes;
  launch.agents.job = job_of(options, plan);
  launch.agents.commands = [request = agent_request(options, plan), backend = plan.backend](
                               const std::vector<HostSlots>& hosts, const std::string& launcher,
                               const std::string& secret) mutable {
    request.hosts = hosts;
    request.launcher = launcher;
    request.secret = secret;
    request.token = make_secret().substr(0, kTokenLength);
    return agent_commands(*backend, request);
  };
  launch.master_addr = options.master_addr.value_or("");
  if (!plan.elastic) return launch;
  launch.elastic = elastic_plan(options, plan);
  launch.agents.job.requeue_code = launch.elastic->requeue_code;
  launch.agents.join_port = plan.join_port;
  launch.agents.join_address = plan.join_address.value_or("");
  launch.master_addr.clear();  // where rank 0 is changes from round to round
  if (plan.join_port) launch.agents.job.master_port.reset();
  return launch;
}

}  // namespace zeroth::launcher
