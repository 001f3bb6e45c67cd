// The output of --dry-run: command lines for a person's shell, one per line. Pure.
#pragma once

#include <string>

#include "launcher/cluster/cluster_plan.h"
#include "launcher/flags/cli.h"
#include "launcher/run/rank_plan.h"
#include "launcher/run/rank_process.h"

namespace zeroth::launcher {

// Returns the lines that start agents; commands that must finish first come first. Values that only
// a started run has are placeholders: ADDRESS:PORT of the launcher, $ZEROTH_RUN_SECRET, and TOKEN
// in the name of a secret's file. A comment line per node follows: which ranks its agent starts,
// and under which name. Throws UsageError as make_agent_commands does.
std::string agent_command_lines(const LaunchOptions& options, const ClusterPlan& plan);

// Returns a line per rank: its variables, its cores and the program. Omits ZEROTH_MEETING, memory
// that only a launcher holds, so that ranks meet at MASTER_ADDR; omits the launch time.
std::string rank_command_lines(const Program& program, const RankPlan& plan);

}  // namespace zeroth::launcher
