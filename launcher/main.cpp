// `zeroth [flags] PROGRAM arguments...` runs one rank of PROGRAM per GPU, or per group of CPU
// cores. `zeroth report` describes the machine. The other commands (launcher/commands/commands.h)
// explain a configuration, list checkpoints, export or merge a model, show and write tokens.
#include <fmt/ranges.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/env_reader.h"
#include "base/error.h"
#include "base/files/run_path.h"
#include "base/machine/memory_file.h"
#include "base/machine/process_limits.h"
#include "base/machine/signals.h"
#include "base/machine/standard_streams.h"
#include "base/restart_attempt.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "launcher/backends/scheduler_node.h"
#include "launcher/backends/shell_words.h"
#include "launcher/cluster/agent.h"
#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/join_run.h"
#include "launcher/cluster/launch_multi_node.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/report.h"
#include "launcher/flags/cli.h"
#include "launcher/machine/find_program.h"
#include "launcher/machine/local_addresses.h"
#include "launcher/run/job_files.h"
#include "launcher/run/local_ranks.h"
#include "launcher/run/program_arguments.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/restart_policy.h"
#include "launcher/transport/authenticated_frames.h"

namespace {

using namespace zeroth;
using namespace zeroth::launcher;

void log_line(const std::string& line) {
  write_all(STDERR_FILENO, printable_message(fmt::format("zeroth: {}\n", line)));
}

int print_result(const CommandResult& result) {
  print_output(result.text);
  return result.status;
}

// Runs `finetune` in place of this process.
int run_finetune(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    print_output(data_command_help());
    return 0;
  }
  const std::string program = (program_directory() / "finetune").string();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw Error("{} cannot be started: {}", program, system_reason(errno));
}

// Commands other than PROGRAM, with the arguments that follow their names.
struct Command {
  std::string_view name;
  int (*run)(const std::vector<std::string>& arguments);
};
constexpr Command kCommands[] = {
    {"check-config", [](const auto& arguments) { return print_result(check_config(arguments)); }},
    {"checkpoint",
     [](const auto& arguments) { return print_result(checkpoint_command(arguments)); }},
    {"export",  // succeeds even if its output has no reader: the model is complete
     [](const auto& words) {
       if (auto merge = export_merge_arguments(words); !merge.empty()) return run_finetune(merge);
       write_all(STDOUT_FILENO, export_command(words));
       return 0;
     }},
    {"inspect-data",
     [](const auto& arguments) { return run_finetune(inspect_data_arguments(arguments)); }},
    {"merge", [](const auto& arguments) { return run_finetune(merge_arguments(arguments)); }},
    {"tokenize", [](const auto& arguments) { return run_finetune(tokenize_arguments(arguments)); }},
    {"agent",  // started by a launcher on each of several nodes
     [](const auto& arguments) {
       return run_agent(parse_agent_options(arguments, read_variable), program_directory());
     }},
};

int run_report() {
  reject_empty_variables(std::getenv);
  print_output(format_report(make_report(program_directory(), LaunchEnvironment::from_process())));
  return 0;
}

// Time for the name of rank 0's node to become known: Kubernetes publishes names late.
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
  PlanRequest request = probe_plan_request();
  LaunchOptions wanted = options;
  if (!wanted.num_ranks && wanted.include.empty() && wanted.exclude.empty())
    wanted.num_ranks = placement.num_ranks;
  request.choice = placement.slots.empty()
                       ? choose_slots(wanted, request.accelerator, request.machine)
                       : hostfile_slots(placement.slots, request.accelerator, request.machine,
                                        options.share_gpus);
  request.node_ranks = with_num_ranks(placement.node_ranks, request.choice.num_ranks);
  resolve_master(options, placement, request);
  request.launch_time = launch_time;
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

JobRunnerOptions runner_options(const LaunchOptions& options, const PrintingCommand& prints,
                                std::optional<int> terminal_columns) {
  return {.job = {.quiet = options.verbosity < Verbosity::kNotes,
                  .output_required = prints.output_required,
                  .signal_grace = std::chrono::seconds(options.grace_seconds)},
          .unprefixed_lines = prints.unprefixed_lines,
          .progress_on_terminal = terminal_columns.has_value()};
}

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
                       const RestartAttempt& attempt, const JobRunnerOptions& runner) {
  const MemoryFile bootstrap_memory = MemoryFile::create("zeroth-meeting");  // open while ranks run
  if (request.choice.num_ranks > 1 && request.node_ranks.num_nodes == 1)
    request.bootstrap_ticket = bootstrap_memory.ticket();
  RankPlan plan = plan_ranks(options, request);
  for (RankSpec& rank : plan.ranks)
    for (auto& variable : restart_variables(attempt)) rank.env.push_back(std::move(variable));
  if (attempt.index > 0) plan.notes.clear();
  log_plan(options, program, plan);
  return supervise(program, plan.ranks, runner);
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
  raise_open_file_limit(launcher_open_files(num_ranks));
  JobRunnerOptions runner = runner_options(options, prints, request.terminal_columns);
  runner.world_size = request.node_ranks.world_size;
  JobFiles files(options, request.launch_time, request.node_ranks.first_rank);
  runner.rank_logs = files.rank_logs(num_ranks);
  const int restarts = prints.single_rank ? 0 : options.elastic.effective_max_restarts();
  RestartPolicy policy(restarts > 0 ? make_run_id() : "", restarts);
  std::optional<IdleSignals> between;
  if (restarts > 0) between.emplace();
  while (true) {
    const std::string saved = restarts > 0 ? newest_checkpoint(options.command) : "";
    JobOutcome outcome = run_attempt(options, program, request, policy.current(), runner);
    if (between && outcome.signal == 0) outcome.signal = between->signal();
    if (restarts > 0 && has_new_checkpoint(saved, newest_checkpoint(options.command)))
      policy.reset_restarts();
    if (!policy.try_restart(outcome)) {
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

// Returns what --dry-run prints: the lines for a person's shell that start agents; commands that
// must finish first come first. Values that only a started run has are placeholders: ADDRESS:PORT
// of the launcher, $ZEROTH_RUN_SECRET, and TOKEN in the name of a secret's file. A comment line per
// node follows: which ranks its agent starts, and under which name. Throws UsageError as
// make_agent_commands does.
std::string agent_command_lines(const LaunchOptions& options, const ClusterPlan& plan) {
  AgentLaunchRequest request = plan.agents;
  request.launcher = "ADDRESS:PORT";
  request.secret = "SECRET";
  request.token = "TOKEN";
  const AgentCommands start = make_agent_commands(*plan.backend, request);
  std::string lines;
  for (const auto* commands : {&start.setup, &start.agents})
    for (const AgentCommand& command : *commands)
      lines += to_shell_command(command, request.secret) + "\n";
  int rank = 0;
  for (const HostSlots& host : plan.agents.hosts) {
    const int next = rank + static_cast<int>(host.slots.size());
    const std::string ranks = next == rank + 1 ? fmt::format("rank {}", rank)
                                               : fmt::format("ranks {}-{}", rank, next - 1);
    lines += printable(fmt::format("# {} starts {} of {} (slots {}): {}", host.host, ranks,
                                   count_ranks(plan.agents.hosts), fmt::join(host.slots, ","),
                                   shell_join(options.command))) +
             "\n";
    rank = next;
  }
  return lines;
}

// Returns what --dry-run prints if ranks start here: a line per rank with its variables, its cores
// and the program. Omits ZEROTH_MEETING, memory that only a launcher holds, so that ranks meet at
// MASTER_ADDR; omits the launch time.
std::string rank_command_lines(const Program& program, const RankPlan& plan) {
  std::string lines;
  for (const RankSpec& rank : plan.ranks) {
    for (const auto& [name, value] : rank.env)
      if (name != "ZEROTH_MEETING" && name != "ZEROTH_LAUNCH_TIME")
        lines += fmt::format("{}={} ", name, shell_quote(value));
    if (!rank.cores.empty()) lines += fmt::format("taskset -c {} ", fmt::join(rank.cores, ","));
    std::vector<std::string> command = program.command;
    command[0] = program.file.string();
    lines += shell_join(command) + "\n";
  }
  return lines;
}

// Warns only: each node finds the program by itself, and may have it if this machine does not.
void warn_if_program_missing(const LaunchOptions& options) {
  try {
    (void)make_program(options.command, program_directory());
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
  raise_open_file_limit(launcher_open_files(count_ranks(plan.agents.hosts)));
  JobFiles files(options, launch_time, /*first_rank=*/0);
  MultiNodeConfig config = make_multi_node_config(options, plan);
  config.agents.log = log_line;
  config.log_outcome = log_outcome;
  if (config.agents.join_port) config.agents.secret = join_secret();
  config.launch_time = launch_time;
  config.terminal_columns = terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  config.runner = runner_options(options, prints, config.terminal_columns);
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
  const bool has_secret = read_variable("ZEROTH_SECRET") || read_variable("ZEROTH_SECRET_FILE");
  if (request.node_ranks.node_rank == 0 && !has_secret)
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
  raise_open_file_limit(launcher_open_files(/*num_ranks=*/0));
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
  const Program program = make_program(options.command, program_directory());
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

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // Until the supervisor installs its own: the first process of a container ignores signals without
  // a handler.
  if (::getpid() == 1)
    for (const int signal : termination_signals())
      std::signal(signal, [](int number) { ::_exit(128 + number); });
  const double now = seconds_since_epoch();
  try {
    for (const Command& command : kCommands)
      if (argc > 1 && argv[1] == command.name) return command.run({argv + 2, argv + argc});
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
