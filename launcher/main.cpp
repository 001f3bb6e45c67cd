// `zeroth [flags] PROGRAM arguments...` runs one rank of PROGRAM per GPU, or per group of CPU
// cores. `zeroth report` describes the machine. `zeroth check-config FILE` explains a
// configuration. `zeroth checkpoint list DIR` lists a run's checkpoints. `zeroth export DIR OUT`
// exports a model.
#include <fmt/ranges.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/describe_exception.h"
#include "base/files/run_path.h"
#include "base/machine/memory_file.h"
#include "base/machine/process_limits.h"
#include "base/machine/standard_streams.h"
#include "base/machine/termination_signals.h"
#include "base/text/diagnostics.h"
#include "base/text/empty_variables.h"
#include "base/text/printable.h"
#include "launcher/backends/scheduler_node.h"
#include "launcher/cluster/agent.h"
#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/dry_run.h"
#include "launcher/cluster/join_run.h"
#include "launcher/cluster/multi_node_config.h"
#include "launcher/commands/check_config.h"
#include "launcher/commands/checkpoint_command.h"
#include "launcher/commands/export_command.h"
#include "launcher/commands/report.h"
#include "launcher/flags/cli.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/master_address.h"
#include "launcher/run/job_files.h"
#include "launcher/run/newest_checkpoint.h"
#include "launcher/run/printing_command.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/restart_policy.h"
#include "launcher/run/supervisor.h"
#include "launcher/transport/authenticated_frames.h"

namespace {

using namespace zeroth;
using namespace zeroth::launcher;

// Maximum number of the launcher's open files, with a reserve.
constexpr int kOpenFiles = 24, kOpenFilesPerRank = 4;

void log_line(const std::string& line) {
  write_all(STDERR_FILENO, printable_message(fmt::format("zeroth: {}\n", line)));
}

int run_check_config(const std::vector<std::string>& arguments) {
  const ConfigCheck check = check_config(arguments);
  print_output(check.text);
  return check.status;
}

int run_checkpoint_command(const std::vector<std::string>& arguments) {
  const CheckpointAnswer answer = checkpoint_command(arguments);
  print_output(answer.text);
  return answer.status;
}

// Succeeds even if its output has no reader: the model is complete.
int run_export_command(const std::vector<std::string>& arguments) {
  write_all(STDOUT_FILENO, export_command(arguments));
  return 0;
}

// Runs the command that a launcher starts on each of several nodes.
int run_agent_command(const std::vector<std::string>& arguments) {
  return run_agent(parse_agent_options(arguments, read_variable), program_directory());
}

int run_report() {
  reject_empty_variables(std::getenv);
  print_output(format_report(make_report(program_directory(), LaunchEnvironment::from_process())));
  return 0;
}

// Time for the name of rank 0's node to become known if a scheduler starts the nodes: Kubernetes
// publishes names late.
constexpr std::chrono::minutes kResolveTimeout{2};

// Sets rank 0's address: the local one if rank 0 is here, otherwise the user's or the scheduler's.
void resolve_master(const LaunchOptions& options, const Placement& placement,
                    PlanRequest& request) {
  const NodeRanks& node_ranks = request.node_ranks;
  request.master_addr = options.master_addr.value_or(placement.master_addr.value_or("127.0.0.1"));
  request.master_port =
      options.master_port.value_or(placement.master_port.value_or(kDefaultMasterPort));
  if (!placement.scheduler.empty() && !options.dry_run)
    wait_for_address(request.master_addr, kResolveTimeout, log_line);
  if (node_ranks.node_rank > 0) return;
  check_master_addr(request.master_addr, node_ranks.num_nodes == 1);
  request.master_port = node_ranks.num_nodes == 1 ? resolve_master_port(options.master_port)
                                                  : resolve_master_port(request.master_port);
}

PlanRequest make_plan_request(const LaunchOptions& options, const Placement& placement,
                              double launch_time) {
  const LaunchEnvironment environment = LaunchEnvironment::from_process();
  check_timeout(environment.deepspeed_timeout);
  const Machine machine = probe_machine(environment);
  PlanRequest request;
  request.accelerator = resolve_accelerator(environment.ds_accelerator, machine);
  LaunchOptions wanted = options;
  if (!wanted.num_ranks && wanted.include.empty() && wanted.exclude.empty())
    wanted.num_ranks = placement.num_ranks;
  request.choice = placement.slots.empty() ? choose_slots(wanted, request.accelerator, machine)
                                           : hostfile_slots(placement.slots, request.accelerator,
                                                            machine, options.share_gpus);
  request.machine = machine;
  request.node_ranks = with_num_ranks(placement.node_ranks, request.choice.num_ranks);
  resolve_master(options, placement, request);
  request.launch_time = launch_time;
  request.user_sets_nccl_socket = environment.nccl_socket_ifname.has_value();
  request.user_sets_threads = environment.omp_num_threads.has_value();
  if (placement.scheduler.empty())  // the scheduler merges the outputs of all nodes
    request.terminal_columns = terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  return request;
}

void log_plan(const LaunchOptions& options, const Program& program, const RankPlan& plan) {
  if (options.verbosity >= Verbosity::kWarnings)
    for (const std::string& note : plan.notes) log_line(note);
  if (options.verbosity < Verbosity::kDebug) return;
  log_line(fmt::format("program {}: {}", program.file.string(), fmt::join(program.command, " ")));
  for (const RankSpec& rank : plan.ranks) {
    std::string text = fmt::format("rank {}: cores [{}]", rank.rank, fmt::join(rank.cores, ","));
    for (const auto& [name, value] : rank.env) text += fmt::format(" {}={}", name, value);
    log_line(text);
  }
}

JobOptions job_options(const LaunchOptions& options, const PrintingCommand& prints) {
  return {.quiet = options.verbosity < Verbosity::kNotes,
          .output_required = prints.output_required,
          .signal_grace = std::chrono::seconds(options.grace_seconds)};
}

// JobFiles owns the files that the flags request, for as long as the job runs.
class JobFiles {
 public:
  JobFiles(const LaunchOptions& options, double launch_time, int first_rank)
      : directory_(options.rank_log_directory), launch_time_(launch_time), first_rank_(first_rank) {
    if (options.save_pid) pid_file_.emplace(::getpid());
  }
  // Returns a log per rank, whose number may grow between attempts; empty if none are requested.
  std::vector<int> rank_logs(int num_ranks) {
    if (directory_.empty()) return {};
    const int known = static_cast<int>(logs_.size());
    if (num_ranks > known)
      for (FileDescriptor& log : open_rank_logs(directory_, static_cast<std::time_t>(launch_time_),
                                                num_ranks - known, first_rank_ + known))
        logs_.push_back(std::move(log));
    std::vector<int> files;
    for (int rank = 0; rank < num_ranks; ++rank)
      files.push_back(logs_[static_cast<size_t>(rank)].get());
    return files;
  }

 private:
  std::string directory_;
  double launch_time_;
  int first_rank_;
  std::vector<FileDescriptor> logs_;
  std::optional<PidFile> pid_file_;
};

// Writes the message verbatim: its lines are the launcher's own and the last ones of a rank.
void log_outcome(const std::string& message) {
  if (!message.empty()) write_all(STDERR_FILENO, fmt::format("zeroth: {}\n", message));
}

int report_outcome(const LaunchOptions& options, const JobOutcome& outcome) {
  log_outcome(outcome.message);
  return to_exit_code(outcome, options.elastic.effective_requeue_code());
}

// Runs the ranks of this machine, once.
JobOutcome run_attempt(const LaunchOptions& options, const Program& program, PlanRequest request,
                       const RestartAttempt& attempt, SupervisorOptions supervision) {
  const MemoryFile bootstrap_memory = MemoryFile::create("zeroth-meeting");  // open while ranks run
  if (request.choice.num_ranks > 1 && request.node_ranks.num_nodes == 1)
    request.bootstrap_ticket = bootstrap_memory.ticket();
  RankPlan plan = plan_ranks(options, request);
  for (RankSpec& rank : plan.ranks)
    for (auto& variable : restart_variables(attempt)) rank.env.push_back(std::move(variable));
  if (attempt.index > 0) plan.notes.clear();
  log_plan(options, program, plan);
  return supervise(program, plan.ranks, supervision);
}

// IdleSignals receives termination signals between two attempts, while no supervisor handles them.
class IdleSignals {
 public:
  IdleSignals() : signals_(io_) {
    for (const int signal : termination_signals()) signals_.add(signal);
    signals_.async_wait([this](boost::system::error_code error, int signal) {
      if (!error) signal_ = signal;
    });
  }
  int signal() {  // 0: none came
    io_.poll();
    return signal_;
  }

 private:
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  int signal_ = 0;
};

// Runs the ranks of this machine, and again while restarts are left.
int run_ranks(const LaunchOptions& options, const Program& program, PlanRequest request,
              const PrintingCommand& prints) {
  const int num_ranks = request.choice.num_ranks;
  raise_open_file_limit(kOpenFiles + kOpenFilesPerRank * num_ranks);
  SupervisorOptions supervision{.job = job_options(options, prints),
                                .unprefixed_lines = prints.unprefixed_lines,
                                .progress_on_terminal = request.terminal_columns.has_value(),
                                .world_size = request.node_ranks.world_size};
  JobFiles files(options, request.launch_time, request.node_ranks.first_rank);
  supervision.rank_logs = files.rank_logs(num_ranks);
  const int restarts = prints.single_rank ? 0 : options.elastic.effective_max_restarts();
  RestartPolicy policy(restarts > 0 ? make_run_id() : "", restarts);
  std::optional<IdleSignals> between;
  if (restarts > 0) between.emplace();
  while (true) {
    const std::string saved = restarts > 0 ? newest_checkpoint(options.command) : "";
    JobOutcome outcome = run_attempt(options, program, request, policy.current(), supervision);
    if (between && outcome.signal == 0) outcome.signal = between->signal();
    if (restarts > 0 && has_new_checkpoint(saved, newest_checkpoint(options.command)))
      policy.reset_restarts();
    if (!policy.start_next(outcome)) {
      const std::string why = policy.no_restart_reason(outcome);
      if (!why.empty()) outcome.message += "\nzeroth: " + why;
      return report_outcome(options, outcome);
    }
    log_outcome(outcome.message);
    if (options.verbosity >= Verbosity::kNotes)
      log_line(fmt::format("round {} ({})", policy.current().index, policy.describe_restarts()));
    request.master_port = resolve_master_port(options.master_port);
    request.launch_time = seconds_since_epoch();
  }
}

// Warns only: each node finds the program by itself, and may have it if this machine does not.
void warn_if_program_missing(const LaunchOptions& options) {
  try {
    (void)find_program(options.command[0], program_directory(),
                       LaunchEnvironment::from_process().path);
  } catch (const ProgramError& error) {
    if (options.verbosity >= Verbosity::kWarnings)
      log_line(fmt::format("warning: on this machine {}", error.what()));
  }
}

// Runs ranks on several nodes, started by agents.
int run_multi_node(const LaunchOptions& options, const ClusterPlan& plan, double launch_time,
                   const PrintingCommand& prints) {
  if (options.dry_run) {
    warn_if_program_missing(options);
    print_output(agent_command_lines(options, plan));
    return 0;
  }
  raise_open_file_limit(kOpenFiles + kOpenFilesPerRank * count_ranks(plan.hosts));
  JobFiles files(options, launch_time, /*first_rank=*/0);
  MultiNodeConfig config = make_multi_node_config(options, plan);
  config.agents.log = log_line;
  config.log_outcome = [](const std::string& message) { log_outcome(message); };
  if (config.agents.join_port) config.agents.secret = join_secret();
  config.launch_time = launch_time;
  config.terminal_columns = terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  config.runner.job = job_options(options, prints);
  config.runner.unprefixed_lines = prints.unprefixed_lines;
  config.runner.progress_on_terminal = config.terminal_columns.has_value();
  config.rank_logs = [&files](int ranks) { return files.rank_logs(ranks); };
  return report_outcome(options, launch_multi_node(config));
}

void log_notes(const LaunchOptions& options, const Placement& placement) {
  if (options.verbosity < Verbosity::kNotes) return;
  for (const auto* notes : {&options.notes, &placement.notes})
    for (const std::string& line : *notes) log_line(line);
}

// Logs the index of this node, if a scheduler has started all nodes.
void log_node(const LaunchOptions& options, const Placement& placement,
              const PlanRequest& request) {
  if (options.verbosity < Verbosity::kNotes || placement.scheduler.empty()) return;
  log_line(fmt::format("node {} of {} ({}), master {}:{}", request.node_ranks.node_rank,
                       request.node_ranks.num_nodes, placement.scheduler,
                       shortened(request.master_addr), request.master_port));
  if (request.node_ranks.node_rank == 0 && !LaunchEnvironment::from_process().has_secret)
    log_line(
        "neither ZEROTH_SECRET nor ZEROTH_SECRET_FILE is set: anyone who can reach that port can "
        "disturb the start of the ranks. Set one of them on all nodes (docs/security.md)");
}

int run_join(const LaunchOptions& options, const Placement& placement) {
  if (!options.dry_run) return join_run(options, placement);
  print_output(fmt::format("zeroth --join {} --num_gpus {}\n", placement.join,
                           make_join_offer(options, placement).num_ranks));
  return 0;
}

int run_launch(LaunchOptions options, double launch_time) {
  reject_empty_variables(std::getenv);
  if (options.verbosity >= Verbosity::kWarnings && !options.warnings.empty())
    log_line("warning: " + listed(options.warnings));
  raise_open_file_limit(kOpenFiles);
  if (!options.elastic.join.empty()) {
    check_not_nested(process_environment(), {});
    return run_join(options, {.join = options.elastic.join});
  }
  const PrintingCommand prints = printing_command(options.command);
  if (!prints.single_rank && !options.hosts.no_ssh)
    for (std::string& text : apply_kubeflow_elastic(process_environment(), options.elastic))
      options.notes.push_back(std::move(text));
  const Placement placement = prints.single_rank ? Placement{} : find_placement(options);
  log_notes(options, placement);
  if (prints.output_required && stdout_was_closed()) throw Error("standard output is closed");
  if (!placement.join.empty()) return run_join(options, placement);
  if (placement.cluster) return run_multi_node(options, *placement.cluster, launch_time, prints);
  const std::string path = LaunchEnvironment::from_process().path;
  const Program program{find_program(options.command[0], program_directory(), path),
                        options.command};
  PlanRequest request = make_plan_request(options, placement, launch_time);
  if (prints.single_rank) {
    request.choice.num_ranks = 1;
    request.node_ranks = {};
  }
  log_node(options, placement, request);
  if (!options.dry_run) return run_ranks(options, program, std::move(request), prints);
  const RankPlan plan = plan_ranks(options, request);
  for (const std::string& note : plan.notes) log_line(note);
  print_output(rank_command_lines(program, plan));
  return 0;
}

// Installs handlers until the supervisor does: the first process of a container ignores signals
// without a handler.
void install_signal_handlers() {
  for (const int signal : termination_signals())
    std::signal(signal, [](int number) { ::_exit(128 + number); });
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  if (::getpid() == 1) install_signal_handlers();
  const double now = seconds_since_epoch();
  try {
    if (argc > 1 && std::string_view(argv[1]) == "check-config")
      return run_check_config({argv + 2, argv + argc});
    if (argc > 1 && std::string_view(argv[1]) == "checkpoint")
      return run_checkpoint_command({argv + 2, argv + argc});
    if (argc > 1 && std::string_view(argv[1]) == "export")
      return run_export_command({argv + 2, argv + argc});
    if (argc > 1 && std::string_view(argv[1]) == "agent")
      return run_agent_command({argv + 2, argv + argc});
    const LaunchOptions options = parse_command_line({argv + 1, argv + argc});
    if (options.report) return run_report();
    if (options.answer.empty()) return run_launch(options, now);
    print_output(options.answer);
    return 0;
  } catch (const ProgramError& error) {
    log_line(fmt::format("error: {}", error.what()));
    return error.status();
  } catch (const UsageError& error) {
    log_line(fmt::format("error: {}", error.what()));
    return kUsageExitCode;
  } catch (const std::exception& error) {
    log_line(fmt::format("error: {}", describe_exception(error)));
    return 1;
  }
}
