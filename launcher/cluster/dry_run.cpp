#include "launcher/cluster/dry_run.h"

#include <fmt/ranges.h>

#include "base/text/printable.h"
#include "launcher/backends/shell_words.h"

namespace zeroth::launcher {

std::string agent_command_lines(const LaunchOptions& options, const ClusterPlan& plan) {
  AgentLaunchRequest request = make_agent_request(options, plan);
  request.launcher = "ADDRESS:PORT";
  request.secret = "SECRET";
  request.token = "TOKEN";
  const AgentCommands start = make_agent_commands(*plan.backend, request);
  std::string lines;
  for (const auto* commands : {&start.setup, &start.agents})
    for (const AgentCommand& command : *commands)
      lines += to_shell_command(command, request.secret) + "\n";
  int rank = 0;
  for (const HostSlots& host : plan.hosts) {
    const int next = rank + static_cast<int>(host.slots.size());
    const std::string ranks = next == rank + 1 ? fmt::format("rank {}", rank)
                                               : fmt::format("ranks {}-{}", rank, next - 1);
    lines += printable(fmt::format("# {} starts {} of {} (slots {}): {}", host.host, ranks,
                                   count_ranks(plan.hosts), fmt::join(host.slots, ","),
                                   shell_join(options.command))) +
             "\n";
    rank = next;
  }
  return lines;
}

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

}  // namespace zeroth::launcher
