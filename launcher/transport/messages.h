// The messages between launcher and agent, and their bytes. Arguments, paths and environment are
// bytes of any meaning. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/restart_attempt.h"
#include "launcher/run/job_state_machine.h"

namespace zeroth::launcher {

// --- from the agent ---

struct Hello {          // the agent's first message
  std::string version;  // of Zeroth
  int node = 0;         // index of the node in the job
  bool operator==(const Hello&) const = default;
};
struct Join {           // the first message of a node that joins by itself
  std::string version;  // of Zeroth
  std::string name;
  int num_ranks = 0;  // that the node offers
  bool operator==(const Join&) const = default;
};
struct Problems {  // why no rank can start on the node
  std::vector<std::string> texts;
  bool operator==(const Problems&) const = default;
};
struct Ready {  // all that ranks need is available
  std::string accelerator;
  std::string model;    // digest of the model's directory; empty: no model, or not on this node
  int master_port = 0;  // a free port, for the case that rank 0 runs there
  std::vector<std::string> notes;  // to be shown
  std::string machine;  // machine_id(), as two nodes may be one machine; empty: hidden there
  std::vector<std::string> gpus;  // for its ranks' exclusive use, as the machine names them
  bool operator==(const Ready&) const = default;
};
struct OutputLines {  // output of ranks, in order
  struct OutputLine {
    int rank = 0;
    bool error = false;    // from standard error
    bool redraws = false;  // ended with '\r', see LineEnd::kReturn
    std::string text;
    bool operator==(const OutputLine&) const = default;
  };
  std::vector<OutputLine> lines;
  bool operator==(const OutputLines&) const = default;
};
struct Warning {
  std::string text;
  bool operator==(const Warning&) const = default;
};
struct Drained {  // no process of the job is left on the node
  std::optional<int64_t> oom_kills;
  bool operator==(const Drained&) const = default;
};

// --- from the launcher ---

struct RemoteJob {                                       // what to start on the node, later
  std::vector<std::string> command;                      // the program and its arguments
  std::string working_directory;                         // working directory of the ranks
  std::vector<std::pair<std::string, std::string>> env;  // forwarded from the launcher
  std::vector<int> slots;
  bool share_gpus = false;
  bool oversubscribe = false;
  std::optional<bool> bind_cores;
  std::string bind_core_list;
  std::optional<int> timeout_seconds;
  std::optional<int> master_port;                      // the requested port
  std::chrono::milliseconds liveness_timeout{15'000};  // silence after which the peer is lost
  std::chrono::milliseconds failure_grace{3'000};
  // Exit code of the agent if the launcher is lost, in a run of several attempts. The agent then
  // stays when its ranks have ended, and receives this job again before each attempt. Empty: there
  // is one attempt.
  std::optional<int> requeue_code;
  bool operator==(const RemoteJob&) const = default;
};
struct StartRanks {
  int first_rank = 0;
  int num_ranks = 0;  // to start on the node, at most its slots
  int world_size = 0;
  int node_rank = 0;  // among the nodes that have ranks
  int num_nodes = 0;
  std::string master_addr;
  int master_port = 0;
  double launch_time = 0;               // seconds since the epoch
  std::optional<int> terminal_columns;  // of the launcher's output, if rank 0 is on the node
  RestartAttempt attempt = {};
  bool operator==(const StartRanks&) const = default;
};
struct Suspend {  // ranks stop or resume with the launcher
  bool stop = false;
  bool operator==(const Suspend&) const = default;
};
struct WindowUpdate {  // bytes of lines delivered; as many more may follow
  uint64_t bytes = 0;
  bool operator==(const WindowUpdate&) const = default;
};
struct Drain {  // no rank is left: end orphans, send remaining output
  bool operator==(const Drain&) const = default;
};
struct Shutdown {  // the run ends, or continues without this node: the agent exits
  int status = 0;
  std::string why = {};  // empty: nothing to log
  bool operator==(const Shutdown&) const = default;
};

// --- from both ---

struct Heartbeat {
  bool operator==(const Heartbeat&) const = default;
};

// Message also includes RanksPolled, SignalReceived (from an agent that received a signal) and
// SignalRanks (from the launcher).
using Message = std::variant<Hello, Join, Problems, Ready, OutputLines, Warning, Drained,
                             RanksPolled, SignalReceived, RemoteJob, StartRanks, Suspend,
                             WindowUpdate, Drain, Shutdown, SignalRanks, Heartbeat>;

std::string encode(const Message& message);

// Parses the bytes of one message. Throws Error on anything else.
Message decode(std::string_view bytes);

// Maximum bytes of a text, and maximum number of texts in a list, after make_showable().
inline constexpr size_t kMaxTextBytes = 4000, kMaxTexts = 1024;

// Makes the texts of another node's message printable, as printable_message() does, and truncates
// texts and lists of texts to these sizes. Leaves RemoteJob, whose arguments, paths and variables
// are bytes, and OutputLines, which are the ranks' output.
void make_showable(Message& message);

}  // namespace zeroth::launcher
