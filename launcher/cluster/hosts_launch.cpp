#include "launcher/cluster/hosts_launch.h"

#include <filesystem>

#include "launcher/cluster/seal.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kTokenLength = 16;

RemoteJob job_of(const LaunchOptions& options, const ClusterPlan& plan) {
  RemoteJob job;
  job.command = options.command;
  job.folder = std::filesystem::current_path();
  job.env = plan.environment;
  job.share_gpus = options.share_gpus;
  job.bind_cores = options.bind_cores;
  job.bind_core_list = options.bind_core_list;
  job.timeout_seconds = options.timeout_seconds;
  job.master_port = options.master_port;
  return job;
}

}  // namespace

HostsLaunch hosts_launch(const LaunchOptions& options, const ClusterPlan& plan) {
  HostsLaunch launch;
  launch.gathering.hosts = plan.hosts;
  launch.gathering.job = job_of(options, plan);
  launch.gathering.agents = [request = agent_request(options, plan), backend = plan.backend](
                                const std::string& launcher, const std::string& secret) mutable {
    request.launcher = launcher;
    request.secret = secret;
    request.token = make_secret().substr(0, kTokenLength);
    return agent_commands(*backend, request);
  };
  launch.master_addr = options.master_addr.value_or("");
  return launch;
}

}  // namespace zeroth::launcher
