// The signals that ask a process to end.
#pragma once

#include <vector>

namespace zeroth {

// SIGINT and SIGTERM; and SIGHUP, as of a terminal that closes, unless it is ignored: then, as
// under nohup, the process is to outlive its terminal.
std::vector<int> termination_signals();

bool is_ignored(int signal);

}  // namespace zeroth
