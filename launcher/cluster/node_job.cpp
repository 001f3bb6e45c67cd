#include "launcher/cluster/node_job.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/machine/machine_id.h"
#include "base/machine/process_limits.h"
#include "base/restart_attempt.h"
#include "base/sha256.h"
#include "base/text/printable.h"
#include "launcher/machine/local_addresses.h"
#include "launcher/machine/machine.h"
#include "launcher/run/program_arguments.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;  // an index of a million tensors has 100 MB

bool is_model_definition(const std::string& name) {
  return name == "config.json" || name.ends_with(".index.json");
}

}  // namespace

NodeJob::NodeJob(const RemoteJob& job, std::filesystem::path zeroth_directory)
    : job_(job), zeroth_directory_(std::move(zeroth_directory)) {
  options_.timeout_seconds = job_.timeout_seconds;
  options_.bind_cores = job_.bind_cores;
  options_.bind_core_list = job_.bind_core_list;
  options_.share_gpus = job_.share_gpus;
  options_.oversubscribe = job_.oversubscribe;
}

std::variant<Ready, Problems> NodeJob::check_readiness() {
  Ready ready;
  Problems problems;
  const auto collect_problem = [&](const auto& step) {
    try {
      step();
    } catch (const Error& error) {
      problems.texts.emplace_back(error.what());
    }
  };
  collect_problem([&] { apply_environment(); });
  collect_problem([&] { resolve_program(); });
  collect_problem([&] { resolve_slots(); });
  collect_problem([&] { ready.master_port = resolve_master_port(job_.master_port); });
  collect_problem([&] { ready.model = model_digest(model_argument(job_.command)); });
  if (!problems.texts.empty()) return problems;
  ready.accelerator = to_string(request_.accelerator);
  const auto given = read_variable("ZEROTH_HOST_ID");
  if (given || !boot_id().empty()) ready.machine = machine_id(given);
  const bool has_own_gpus = request_.accelerator == Accelerator::kCuda && !job_.share_gpus;
  if (has_own_gpus) ready.gpus = request_.choice.slots;
  collect_problem([&] { ready.notes = plan_ranks(options_, request_).notes; });
  if (!problems.texts.empty()) return problems;
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
  program_ = make_program(job_.command, zeroth_directory_);
}

void NodeJob::resolve_slots() {
  request_ = probe_plan_request();
  request_.choice =
      hostfile_slots(job_.slots, request_.accelerator, request_.machine, job_.share_gpus);
  raise_open_file_limit(launcher_open_files(request_.choice.num_ranks));
}

RankPlan NodeJob::plan(const StartRanks& start, const std::string& secret) {
  if (start.num_ranks < 1 || start.num_ranks > std::ssize(job_.slots))
    throw Error("{} ranks are to start here, which has {} slots", start.num_ranks,
                job_.slots.size());
  request_.choice.num_ranks = start.num_ranks;  // the others are spares in this attempt
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

std::string model_argument(const std::vector<std::string>& command) {
  return find_argument(command, {"--model", "--model_name_or_path"});
}

std::string model_digest(const std::string& directory) {
  std::error_code none;
  if (directory.empty() || !std::filesystem::is_directory(directory, none)) return "";
  std::set<std::string> names;
  for (std::filesystem::directory_iterator entry(directory, none), end; !none && entry != end;
       entry.increment(none))
    if (is_model_definition(entry->path().filename().string()))
      names.insert(entry->path().filename().string());
  if (none) throw Error("the model's folder {}: {}", shortened(directory, 1000), none.message());
  Sha256 digest;
  for (const std::string& name : names) {
    digest.add(name + '\0');
    digest.add(digest_bytes(
        Sha256::of(read_file(std::filesystem::path(directory) / name, kMaxFileBytes))));
  }
  return to_hex(digest.finish());
}

}  // namespace zeroth::launcher
