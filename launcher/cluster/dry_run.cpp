#include "launcher/cluster/dry_run.h"

#include <fmt/ranges.h>

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
