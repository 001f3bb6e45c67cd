// Runs on several hosts, which are this machine under several names (hosts_program.cpp).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher {

using Words = std::vector<std::string>;

class MultiHostProcess : public LaunchedProcess {
 public:
  explicit MultiHostProcess(const Words& words, const Environment& environment = {},
                            int output = -1)
      : LaunchedProcess(words, environment, output, "tests/hosts_program") {}
};

// The command line of two hosts with two ranks each: `options` of hosts_program, `mode` of
// rank_program.
Words on_two_hosts(const Words& options, const Words& mode);

bool contains(const std::string& text, const std::string& part);
bool none_alive(const std::vector<pid_t>& pids);

// Of a process that runs; "unset".
std::string variable_of(pid_t pid, const std::string& name);
pid_t parent_of(pid_t pid);
// The one of these processes that is this rank, or -1.
pid_t rank_of(const std::vector<pid_t>& pids, const std::string& rank);
std::set<pid_t> agents_of(const std::vector<pid_t>& ranks);

}  // namespace zeroth::launcher
