#include "launcher/cluster/node_job.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "launcher/cluster/agent_options.h"
#include "launcher/cluster/model_digest.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/master_address.h"

namespace zeroth::launcher {
namespace {

constexpr int kOpenFiles = 24, kOpenFilesPerRank = 4;  // of an agent, at most, with a reserve

}  // namespace

NodeJob::NodeJob(const RemoteJob& job, std::filesystem::path zeroth_directory)
    : job_(job), zeroth_directory_(std::move(zeroth_directory)) {
  options_.timeout_seconds = job_.timeout_seconds;
  options_.bind_cores = job_.bind_cores;
  options_.bind_core_list = job_.bind_core_list;
  options_.share_gpus = job_.share_gpus;
  options_.oversubscribe = job_.oversubscribe;
}

template <typename Step>
void NodeJob::collect_problem(const Step& step) {
  try {
    step();
  } catch (const Error& error) {
    problems_.texts.emplace_back(error.what());
  }
}

std::variant<Ready, Problems> NodeJob::check_readiness() {
  Ready ready;
  collect_problem([&] { apply_environment(); });
  collect_problem([&] { resolve_program(); });
  collect_problem([&] { resolve_slots(); });
  collect_problem([&] { ready.master_port = resolve_master_port(job_.master_port); });
  collect_problem([&] { ready.model = model_digest(model_argument(job_.command)); });
  if (!problems_.texts.empty()) return problems_;
  ready.accelerator = to_string(request_.accelerator);
  const auto given = read_variable("ZEROTH_HOST_ID");
  if (given || !boot_id().empty()) ready.machine = machine_id(given);
  const bool has_own_gpus = request_.accelerator == Accelerator::kCuda && !job_.share_gpus;
  if (has_own_gpus) ready.gpus = request_.choice.slots;
  collect_problem([&] { ready.notes = plan_ranks(options_, request_).notes; });
  if (!problems_.texts.empty()) return problems_;
  return ready;
}

void NodeJob::apply_environment() {
  for (const auto& [name, value] : job_.env) ::setenv(name.c_str(), value.c_str(), 1);
  if (::chdir(job_.working_directory.c_str()) != 0)
    throw Error("the working folder {}: {}", shortened(job_.working_directory, 1000),
                system_reason(errno));
  ::setenv("PWD", job_.working_directory.c_str(), 1);
}

void NodeJob::resolve_program() {
  if (job_.command.empty()) throw Error("there is no program to start");
  program_ = {
      find_program(job_.command[0], zeroth_directory_, LaunchEnvironment::from_process().path),
      job_.command};
}

void NodeJob::resolve_slots() {
  const LaunchEnvironment environment = LaunchEnvironment::from_process();
  check_timeout(environment.deepspeed_timeout);
  request_.machine = probe_machine(environment);
  request_.accelerator = resolve_accelerator(environment.ds_accelerator, request_.machine);
  request_.choice =
      hostfile_slots(job_.slots, request_.accelerator, request_.machine, job_.share_gpus);
  request_.user_sets_threads = environment.omp_num_threads.has_value();
  request_.user_sets_nccl_socket = environment.nccl_socket_ifname.has_value();
  raise_open_file_limit(kOpenFiles + kOpenFilesPerRank * request_.choice.num_ranks);
}

RankPlan NodeJob::plan(const StartRanks& start, const std::string& secret) {
  request_.node_ranks = {.node_rank = start.node_rank,
                         .num_nodes = start.num_nodes,
                         .first_rank = start.first_rank,
                         .world_size = start.world_size};
  request_.master_addr = start.master_addr;
  request_.master_port = start.master_port;
  request_.launch_time = start.launch_time;
  request_.terminal_columns = start.terminal_columns;
  if (start.num_nodes == 1 && start.world_size > 1) {
    bootstrap_memory_ = MemoryFile::create("zeroth-meeting");
    request_.bootstrap_ticket = bootstrap_memory_->ticket();
  }
  RankPlan plan = plan_ranks(options_, request_);
  ::unsetenv("ZEROTH_SECRET_FILE");  // it would name a secret of another run
  for (RankSpec& spec : plan.ranks) {
    spec.env.emplace_back("ZEROTH_SECRET", secret);
    for (auto& variable : restart_variables(start.attempt)) spec.env.push_back(std::move(variable));
  }
  return plan;
}

}  // namespace zeroth::launcher
