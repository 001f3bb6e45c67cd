// The signals that ask a process to exit.
#pragma once

#include <vector>

namespace zeroth {

// Returns SIGINT, SIGTERM, and SIGHUP (sent when a terminal closes) unless it is ignored. If it is,
// as under nohup, the process must outlive its terminal.
std::vector<int> termination_signals();

bool is_ignored(int signal);

}  // namespace zeroth
