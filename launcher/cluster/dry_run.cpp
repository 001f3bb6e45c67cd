#include "launcher/cluster/dry_run.h"

#include <fmt/ranges.h>

#include "base/printable.h"
#include "launcher/cluster/shell_words.h"

namespace zeroth::launcher {

std::string agent_lines(const LaunchOptions& options, const ClusterPlan& plan) {
  AgentRequest request = agent_request(options, plan);
  request.launcher = "ADDRESS:PORT";
  request.secret = "SECRET";
  request.token = "TOKEN";
  const AgentStart start = agent_commands(*plan.backend, request);
  std::string lines;
  for (const auto* commands : {&start.before, &start.agents})
    for (const AgentCommand& command : *commands)
      lines += pasteable(command, request.secret) + "\n";
  int rank = 0;
  for (const HostSlots& host : plan.hosts) {
    const int next = rank + static_cast<int>(host.slots.size());
    const std::string ranks = next == rank + 1 ? fmt::format("rank {}", rank)
                                               : fmt::format("ranks {}-{}", rank, next - 1);
    lines += printable(fmt::format("# {} starts {} of {} (slots {}): {}", host.host, ranks,
                                   count_ranks(plan.hosts), fmt::join(host.slots, ","),
                                   joined_for_shell(options.command))) +
             "\n";
    rank = next;
  }
  return lines;
}

std::string rank_lines(const Program& program, const RankPlan& plan) {
  std::string lines;
  for (const RankSpec& rank : plan.ranks) {
    for (const auto& [name, value] : rank.env)
      if (name != "ZEROTH_MEETING" && name != "ZEROTH_LAUNCH_TIME")
        lines += fmt::format("{}={} ", name, quoted_for_shell(value));
    if (!rank.cores.empty()) lines += fmt::format("taskset -c {} ", fmt::join(rank.cores, ","));
    std::vector<std::string> command = program.command;
    command[0] = program.file.string();
    lines += joined_for_shell(command) + "\n";
  }
  return lines;
}

}  // namespace zeroth::launcher
