#include "launcher/cluster/join_run.h"

#include <chrono>

#include "base/files/run_path.h"
#include "base/files/run_secret.h"
#include "base/machine/machine_id.h"
#include "launcher/cluster/agent.h"
#include "launcher/machine/machine.h"
#include "launcher/run/slots.h"

namespace zeroth::launcher {

Join make_join_offer(const LaunchOptions& options, const Placement& placement) {
  if (!placement.slots.empty())
    return {ZEROTH_VERSION, machine_name(), static_cast<int>(placement.slots.size())};
  if (!options.include.empty() || !options.exclude.empty())
    throw UsageError(
        "--include and --exclude are not supported by a host that joins: it offers its first "
        "slots; use --num_gpus, or CUDA_VISIBLE_DEVICES");
  const LaunchEnvironment environment = LaunchEnvironment::from_process();
  const Machine machine = probe_machine(environment);
  LaunchOptions wanted = options;
  if (!wanted.num_ranks) wanted.num_ranks = placement.num_ranks;
  const Accelerator accelerator = resolve_accelerator(environment.ds_accelerator, machine);
  return {ZEROTH_VERSION, machine_name(), choose_slots(wanted, accelerator, machine).num_ranks};
}

std::string join_secret() {
  const std::string secret = rethrow_as_usage_error([] {
    return run_secret(read_variable("ZEROTH_SECRET"), read_variable("ZEROTH_SECRET_FILE"));
  });
  if (!secret.empty()) return secret;
  throw UsageError(
      "a run that hosts join needs ZEROTH_SECRET or ZEROTH_SECRET_FILE, the same on all of them: a "
      "secret of at least 16 characters, for example from 'openssl rand -hex 32'");
}

int join_run(const LaunchOptions& options, const Placement& placement) {
  AgentOptions agent;
  agent.launcher = placement.join;
  agent.secret = join_secret();
  agent.connect_timeout = std::chrono::seconds(options.elastic.wait_seconds);
  agent.join = make_join_offer(options, placement);
  return run_agent(agent, program_directory());
}

}  // namespace zeroth::launcher
