// The command line of `zeroth [flags] PROGRAM arguments...`, parsed without knowledge of the
// machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/flags/host_flags.h"

namespace zeroth::launcher {

// Verbosity of the launcher's own log; each level includes those before it.
enum class Verbosity { kErrors, kWarnings, kNotes, kDebug };

struct LaunchOptions {
  std::optional<int> num_ranks;  // --num_gpus; unset: every GPU, or one rank on the CPU
  std::string include;           // NODE[:slot,slot][@NODE...]; empty: not set
  std::string exclude;
  HostOptions hosts;
  ElasticOptions elastic;
  std::optional<std::string> master_addr;  // unset: 127.0.0.1, or what reaches rank 0's node
  std::optional<int> master_port;          // unset: a free one
  std::optional<int> timeout_seconds;      // of every collective; unset: the ranks' default
  std::optional<bool> bind_cores;          // unset: bound
  std::string bind_core_list;              // "0-3,8"; empty: all cores this process may use
  bool share_gpus = false;
  bool oversubscribe = false;      // allows more than four CPU ranks per core
  int grace_seconds = 300;         // from a forwarded signal to SIGKILL
  std::string rank_log_directory;  // empty: no logs
  bool save_pid = false;
  bool dry_run = false;  // prints what would be started, and starts nothing
  Verbosity verbosity = Verbosity::kNotes;
  std::vector<std::string> command;   // PROGRAM and its arguments, unchanged
  std::vector<std::string> warnings;  // to be shown, one line each
  std::vector<std::string> notes;     // likewise, less important
  bool report = false;                // `zeroth report`: there is no command
  std::string answer;  // not empty (--help, --version): print this and do nothing else
};

// Parses `arguments`, without the program's own name. Throws UsageError. All arguments after
// PROGRAM belong to it.
LaunchOptions parse_command_line(const std::vector<std::string>& arguments);

}  // namespace zeroth::launcher
