// What --dry-run prints: command lines for a person's shell, one in a line. Pure.
#pragma once

#include <string>

#include "launcher/cluster/cluster_plan.h"
#include "launcher/flags/cli.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/rank_process.h"

namespace zeroth::launcher {

// The lines that start agents, those that have to end before first. What is known only once a run
// has started is named: ADDRESS:PORT of the launcher, $ZEROTH_RUN_SECRET, and TOKEN in the name of
// a secret's file. Then, as comments, a line per host: which ranks its agent starts, and as what.
// Throws UsageError as make_agent_commands does.
std::string agent_command_lines(const LaunchOptions& options, const ClusterPlan& plan);

// A line per rank: its variables, its cores and the program. Without ZEROTH_MEETING, memory that
// only a launcher holds, so that ranks meet at MASTER_ADDR, and without the time of the launch.
std::string rank_command_lines(const Program& program, const RankPlan& plan);

}  // namespace zeroth::launcher
