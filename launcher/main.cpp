// `zeroth [flags] PROGRAM arguments...`: one rank of PROGRAM per GPU, or per group of CPU cores.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "launcher/address.h"
#include "launcher/cli.h"
#include "launcher/find_program.h"
#include "launcher/port.h"
#include "launcher/rank_plan.h"
#include "launcher/supervisor.h"

namespace {

using namespace zeroth::launcher;

void say(const std::string& line) {
  fmt::print(stderr, "zeroth: {}\n", line);
}

int launch(const LaunchOptions& options, double launch_time) {
  for (const std::string& warning : options.warnings) say("warning: " + warning);
  const LaunchEnvironment environment = LaunchEnvironment::from_process();
  const auto own_folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const Program program{find_program(options.command[0], own_folder, environment.path),
                        options.command};
  const Machine machine = probe_machine(environment);
  PlanRequest request;
  request.accelerator = resolve_accelerator(environment.ds_accelerator, machine);
  request.choice = choose_slots(options, request.accelerator, machine);
  request.cores = machine.cores;
  check_master_addr(options.master_addr);
  request.master_port = resolve_master_port(options.master_port);
  request.launch_time = launch_time;
  request.user_sets_threads = environment.omp_num_threads.has_value();
  request.terminal_columns = terminal_columns(STDOUT_FILENO);
  const RankPlan plan = plan_ranks(options, request);
  for (const std::string& note : plan.notes) say(note);
  const SupervisorOptions supervision{.progress_on_terminal = request.terminal_columns.has_value()};
  const JobOutcome outcome = supervise(program, plan.ranks, supervision);
  if (!outcome.message.empty()) say(outcome.message);
  return outcome.status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  try {
    const LaunchOptions options = parse_command_line({argv + 1, argv + argc});
    if (options.answer.empty()) return launch(options, now.count());
    fmt::print("{}", options.answer);
    return 0;
  } catch (const ProgramError& error) {
    say(fmt::format("error: {}", error.what()));
    return error.status();
  } catch (const UsageError& error) {
    say(fmt::format("error: {}", error.what()));
    return 2;
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", error.what()));
    return 1;
  }
}
