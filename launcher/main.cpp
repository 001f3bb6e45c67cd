// `zeroth [flags] PROGRAM arguments...`: one rank of PROGRAM per GPU, or per group of CPU cores.
// `zeroth report`: what there is. `zeroth check-config FILE`: what a configuration says. `zeroth
// checkpoint list DIR`: what a run has saved. `zeroth export DIR OUT`: a model out of it.
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

#include "base/complaints.h"
#include "base/empty_variables.h"
#include "base/end_signals.h"
#include "base/failure_text.h"
#include "base/memory_file.h"
#include "base/printable.h"
#include "base/process_limits.h"
#include "base/run_path.h"
#include "base/standard_streams.h"
#include "launcher/check_config.h"
#include "launcher/checkpoint_command.h"
#include "launcher/cluster/agent.h"
#include "launcher/cluster/cluster_plan.h"
#include "launcher/cluster/dry_run.h"
#include "launcher/cluster/hosts_launch.h"
#include "launcher/cluster/joining.h"
#include "launcher/cluster/seal.h"
#include "launcher/cluster/started_by.h"
#include "launcher/export_command.h"
#include "launcher/flags/cli.h"
#include "launcher/machine/master_address.h"
#include "launcher/report.h"
#include "launcher/run/committed.h"
#include "launcher/run/find_program.h"
#include "launcher/run/job_files.h"
#include "launcher/run/printing_command.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/round.h"
#include "launcher/run/supervisor.h"

namespace {

using namespace zeroth;
using namespace zeroth::launcher;

// What the launcher has open at most, with room.
constexpr int kOpenFiles = 24, kOpenFilesOfRank = 4;

void say(const std::string& line) {
  write_all(STDERR_FILENO, printable_message(fmt::format("zeroth: {}\n", line)));
}

int check_config_command(const std::vector<std::string>& arguments) {
  const ConfigCheck check = check_config(arguments);
  print_answer(check.text);
  return check.status;
}

int tell_of_checkpoints(const std::vector<std::string>& arguments) {
  const CheckpointAnswer answer = checkpoint_command(arguments);
  print_answer(answer.text);
  return answer.status;
}

// The model stands, whoever reads this.
int export_a_model(const std::vector<std::string>& arguments) {
  write_all(STDOUT_FILENO, export_command(arguments));
  return 0;
}

// What a launcher starts on each of several hosts.
int agent(const std::vector<std::string>& arguments) {
  return run_agent(parse_agent_options(arguments, own_variable), program_folder());
}

int report() {
  refuse_empty_variables(std::getenv);
  print_answer(format_report(make_report(program_folder(), LaunchEnvironment::from_process())));
  return 0;
}

// How long the name of rank 0's host may be unknown where others start the hosts: those of
// Kubernetes come late.
constexpr std::chrono::minutes kNamePatience{2};

// Where rank 0 listens, if that is here; else what the user has given, or who started zeroth.
void resolve_master(const LaunchOptions& options, const Placement& placement,
                    PlanRequest& request) {
  const HostPart& part = request.part;
  request.master_addr = options.master_addr.value_or(placement.master_addr.value_or("127.0.0.1"));
  request.master_port = options.master_port.value_or(placement.master_port.value_or(kPortByHand));
  if (!placement.starter.empty() && !options.dry_run)
    wait_for_address(request.master_addr, kNamePatience, say);
  if (part.host > 0) return;
  check_master_addr(request.master_addr, part.num_hosts == 1);
  request.master_port = part.num_hosts == 1 ? resolve_master_port(options.master_port)
                                            : resolve_master_port(request.master_port);
}

PlanRequest look_around(const LaunchOptions& options, const Placement& placement,
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
                                           : take_slots(placement.slots, request.accelerator,
                                                        machine, options.share_gpus);
  request.machine = machine;
  request.part = with_ranks(placement.part, request.choice.num_ranks);
  resolve_master(options, placement, request);
  request.launch_time = launch_time;
  request.user_sets_nccl_socket = environment.nccl_socket_ifname.has_value();
  request.user_sets_threads = environment.omp_num_threads.has_value();
  if (placement.starter.empty())  // which joins the outputs of all nodes, maybe from terminals
    request.terminal_columns = terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  return request;
}

void tell(const LaunchOptions& options, const Program& program, const RankPlan& plan) {
  if (options.verbosity >= Verbosity::kWarnings)
    for (const std::string& note : plan.notes) say(note);
  if (options.verbosity < Verbosity::kDebug) return;
  say(fmt::format("program {}: {}", program.file.string(), fmt::join(program.command, " ")));
  for (const RankSpec& rank : plan.ranks) {
    std::string text = fmt::format("rank {}: cores [{}]", rank.rank, fmt::join(rank.cores, ","));
    for (const auto& [name, value] : rank.env) text += fmt::format(" {}={}", name, value);
    say(text);
  }
}

JobOptions job_options(const LaunchOptions& options, const PrintingCommand& prints) {
  return {.quiet = options.verbosity < Verbosity::kNotes,
          .output_is_all = prints.output_is_all,
          .signal_grace = std::chrono::seconds(options.grace_seconds)};
}

// Files that the flags ask for, for as long as the job runs.
class JobFiles {
 public:
  JobFiles(const LaunchOptions& options, double launch_time, int first_rank)
      : folder_(options.rank_log_folder), launch_time_(launch_time), first_rank_(first_rank) {
    if (options.save_pid) pid_file_.emplace(::getpid());
  }
  // Of so many ranks, which may become more from round to round; none where none are asked for.
  std::vector<int> rank_logs(int num_ranks) {
    if (folder_.empty()) return {};
    const int known = static_cast<int>(logs_.size());
    if (num_ranks > known)
      for (FileDescriptor& log : open_rank_logs(folder_, static_cast<std::time_t>(launch_time_),
                                                num_ranks - known, first_rank_ + known))
        logs_.push_back(std::move(log));
    std::vector<int> files;
    for (int rank = 0; rank < num_ranks; ++rank)
      files.push_back(logs_[static_cast<size_t>(rank)].get());
    return files;
  }

 private:
  std::string folder_;
  double launch_time_;
  int first_rank_;
  std::vector<FileDescriptor> logs_;
  std::optional<PidFile> pid_file_;
};

// Lines of our own, and the last ones of a rank as they stand above.
void tell(const std::string& message) {
  if (!message.empty()) write_all(STDERR_FILENO, fmt::format("zeroth: {}\n", message));
}

int tell_outcome(const LaunchOptions& options, const JobOutcome& outcome) {
  tell(outcome.message);
  return exit_status(outcome, options.elastic.code_to_requeue());
}

// Runs the ranks of this machine, once.
JobOutcome run_round(const LaunchOptions& options, const Program& program, PlanRequest request,
                     const Round& round, SupervisorOptions supervision) {
  const MemoryFile meeting = MemoryFile::create("zeroth-meeting");  // open for as long as ranks run
  if (request.choice.num_ranks > 1 && request.part.num_hosts == 1)
    request.meeting = meeting.ticket();
  RankPlan plan = plan_ranks(options, request);
  for (RankSpec& rank : plan.ranks)
    for (auto& variable : round_variables(round)) rank.env.push_back(std::move(variable));
  if (round.number > 0) plan.notes.clear();
  tell(options, program, plan);
  return supervise(program, plan.ranks, supervision);
}

// The signals that ask for the end between two rounds, while no supervisor handles them.
class BetweenRounds {
 public:
  BetweenRounds() : signals_(io_) {
    for (const int signal : end_signals()) signals_.add(signal);
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

// The same, and again while restarts are left.
int run_ranks(const LaunchOptions& options, const Program& program, PlanRequest request,
              const PrintingCommand& prints) {
  const int num_ranks = request.choice.num_ranks;
  require_open_files(kOpenFiles + kOpenFilesOfRank * num_ranks);
  SupervisorOptions supervision{.job = job_options(options, prints),
                                .bare_lines = prints.bare_lines,
                                .progress_on_terminal = request.terminal_columns.has_value(),
                                .world_size = request.part.world_size};
  JobFiles files(options, request.launch_time, request.part.first_rank);
  supervision.rank_logs = files.rank_logs(num_ranks);
  const int restarts = prints.one_rank ? 0 : options.elastic.restarts();
  Rounds rounds(restarts > 0 ? make_run_id() : "", restarts);
  std::optional<BetweenRounds> between;
  if (restarts > 0) between.emplace();
  while (true) {
    const std::string saved = restarts > 0 ? newest_checkpoint(options.command) : "";
    JobOutcome outcome = run_round(options, program, request, rounds.current(), supervision);
    if (between && outcome.signal == 0) outcome.signal = between->signal();
    if (restarts > 0 && has_saved_more(saved, newest_checkpoint(options.command))) rounds.forgive();
    if (!rounds.go_on(outcome)) {
      const std::string why = rounds.why_no_more(outcome);
      if (!why.empty()) outcome.message += "\nzeroth: " + why;
      return tell_outcome(options, outcome);
    }
    tell(outcome.message);
    if (options.verbosity >= Verbosity::kNotes)
      say(fmt::format("round {} ({})", rounds.current().number, rounds.describe_restarts()));
    request.master_port = resolve_master_port(options.master_port);
    request.launch_time = seconds_since_epoch();
  }
}

// Each host looks for it by itself, and may have it where this machine has not.
void warn_of_program(const LaunchOptions& options) {
  try {
    (void)find_program(options.command[0], program_folder(),
                       LaunchEnvironment::from_process().path);
  } catch (const ProgramError& error) {
    if (options.verbosity >= Verbosity::kWarnings)
      say(fmt::format("warning: on this machine {}", error.what()));
  }
}

// Ranks on hosts, started by agents.
int run_on_hosts(const LaunchOptions& options, const ClusterPlan& plan, double launch_time,
                 const PrintingCommand& prints) {
  if (options.dry_run) {
    warn_of_program(options);
    print_answer(agent_lines(options, plan));
    return 0;
  }
  require_open_files(kOpenFiles + kOpenFilesOfRank * count_ranks(plan.hosts));
  JobFiles files(options, launch_time, /*first_rank=*/0);
  HostsLaunch launch = hosts_launch(options, plan);
  launch.agents.say = say;
  launch.tell = [](const std::string& message) { tell(message); };
  if (launch.agents.join_port) launch.agents.secret = secret_of_joiners();
  launch.launch_time = launch_time;
  launch.terminal_columns = terminal_columns(STDOUT_FILENO, std::getenv("TERM"));
  launch.shell.job = job_options(options, prints);
  launch.shell.bare_lines = prints.bare_lines;
  launch.shell.progress_on_terminal = launch.terminal_columns.has_value();
  launch.rank_logs = [&files](int ranks) { return files.rank_logs(ranks); };
  return tell_outcome(options, launch_on_hosts(launch));
}

void note(const LaunchOptions& options, const Placement& placement) {
  if (options.verbosity < Verbosity::kNotes) return;
  for (const auto* notes : {&options.notes, &placement.notes})
    for (const std::string& line : *notes) say(line);
}

// Which of several nodes this is, where others have started all of them.
void tell_node(const LaunchOptions& options, const Placement& placement,
               const PlanRequest& request) {
  if (options.verbosity < Verbosity::kNotes || placement.starter.empty()) return;
  say(fmt::format("node {} of {} ({}), master {}:{}", request.part.host, request.part.num_hosts,
                  placement.starter, shortened(request.master_addr), request.master_port));
  if (request.part.host == 0 && !LaunchEnvironment::from_process().has_secret)
    say("without ZEROTH_SECRET or ZEROTH_SECRET_FILE on all nodes whoever reaches that port can "
        "disturb the ranks' start (docs/security.md)");
}

int join(const LaunchOptions& options, const Placement& placement) {
  if (!options.dry_run) return join_run(options, placement);
  print_answer(fmt::format("zeroth --join {} --num_gpus {}\n", placement.join,
                           offer(options, placement).num_ranks));
  return 0;
}

int launch(LaunchOptions options, double launch_time) {
  refuse_empty_variables(std::getenv);
  if (options.verbosity >= Verbosity::kWarnings && !options.warnings.empty())
    say("warning: " + listed(options.warnings));
  require_open_files(kOpenFiles);
  if (!options.elastic.join.empty()) {
    refuse_nested(own_variables(), {});
    return join(options, {.join = options.elastic.join});
  }
  const PrintingCommand prints = printing_command(options.command);
  if (!prints.one_rank && !options.hosts.no_ssh)
    for (std::string& text : take_elastic_words(own_variables(), options.elastic))
      options.notes.push_back(std::move(text));
  const Placement placement = prints.one_rank ? Placement{} : find_placement(options);
  note(options, placement);
  if (prints.output_is_all && standard_output_was_closed())
    throw Error("standard output is closed");
  if (!placement.join.empty()) return join(options, placement);
  if (placement.cluster) return run_on_hosts(options, *placement.cluster, launch_time, prints);
  const std::string path = LaunchEnvironment::from_process().path;
  const Program program{find_program(options.command[0], program_folder(), path), options.command};
  PlanRequest request = look_around(options, placement, launch_time);
  if (prints.one_rank) {
    request.choice.num_ranks = 1;
    request.part = {};
  }
  tell_node(options, placement, request);
  if (!options.dry_run) return run_ranks(options, program, std::move(request), prints);
  const RankPlan plan = plan_ranks(options, request);
  for (const std::string& note : plan.notes) say(note);
  print_answer(rank_lines(program, plan));
  return 0;
}

// To the first process of a container a signal without a handler means nothing. Until ranks run,
// and the supervisor has handlers.
void heed_signals() {
  for (const int signal : end_signals())
    std::signal(signal, [](int number) { ::_exit(128 + number); });
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  if (::getpid() == 1) heed_signals();
  const double now = seconds_since_epoch();
  try {
    if (argc > 1 && std::string_view(argv[1]) == "check-config")
      return check_config_command({argv + 2, argv + argc});
    if (argc > 1 && std::string_view(argv[1]) == "checkpoint")
      return tell_of_checkpoints({argv + 2, argv + argc});
    if (argc > 1 && std::string_view(argv[1]) == "export")
      return export_a_model({argv + 2, argv + argc});
    if (argc > 1 && std::string_view(argv[1]) == "agent") return agent({argv + 2, argv + argc});
    const LaunchOptions options = parse_command_line({argv + 1, argv + argc});
    if (options.report) return report();
    if (options.answer.empty()) return launch(options, now);
    print_answer(options.answer);
    return 0;
  } catch (const ProgramError& error) {
    say(fmt::format("error: {}", error.what()));
    return error.status();
  } catch (const UsageError& error) {
    say(fmt::format("error: {}", error.what()));
    return kUsageCode;
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", failure_text(error)));
    return 1;
  }
}
