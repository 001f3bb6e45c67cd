// What launcher and agent tell each other, and its bytes. Arguments, paths and environment are
// bytes, whatever they mean. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/run/job_state_machine.h"
#include "launcher/run/restart_policy.h"

namespace zeroth::launcher {

// --- from the agent ---

struct Hello {          // the first one
  std::string version;  // of Zeroth
  int node = 0;         // which host of the job it is
  bool operator==(const Hello&) const = default;
};
struct Join {           // the first one of a host that nobody has asked
  std::string version;  // of Zeroth
  std::string name;
  int num_ranks = 0;  // that it offers
  bool operator==(const Join&) const = default;
};
struct Problems {  // why no rank can start there
  std::vector<std::string> texts;
  bool operator==(const Problems&) const = default;
};
struct Ready {  // all that ranks need is there
  std::string accelerator;
  std::string
      model;  // digest of the model's folder; empty: the program has none, or it is not there
  int master_port = 0;             // free, should rank 0 be there
  std::vector<std::string> notes;  // to be shown
  std::string machine;             // machine_id(): two hosts may be one; empty: hidden there
  std::vector<std::string>
      gpus;  // that its ranks would have to themselves, as its machine has them
  bool operator==(const Ready&) const = default;
};
struct OutputLines {  // what ranks printed, in order
  struct OutputLine {
    int rank = 0;
    bool error = false;    // of standard error
    bool redraws = false;  // it ended with '\r', see LineEnd::kReturn
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
struct Drained {  // no process of the job is left there
  std::optional<int64_t> oom_kills;
  bool operator==(const Drained&) const = default;
};

// --- from the launcher ---

struct RemoteJob {                                       // what is to be started there, later
  std::vector<std::string> command;                      // the program and its arguments
  std::string working_directory;                         // to work in
  std::vector<std::pair<std::string, std::string>> env;  // carried over from the launcher's
  std::vector<int> slots;
  bool share_gpus = false;
  bool oversubscribe = false;
  std::optional<bool> bind_cores;
  std::string bind_core_list;
  std::optional<int> timeout_seconds;
  std::optional<int> master_port;                      // as it was asked for
  std::chrono::milliseconds liveness_timeout{15'000};  // without a word the other side is lost
  std::chrono::milliseconds failure_grace{3'000};
  // Of a run of several rounds: the agent stays when its ranks have ended, and takes this job again
  // before each round; its exit code where the launcher is lost. Empty: there is one round.
  std::optional<int> requeue_code;
  bool operator==(const RemoteJob&) const = default;
};
struct StartRanks {
  int first_rank = 0;
  int world_size = 0;
  int node_rank = 0;  // without those that take no part
  int num_nodes = 0;
  std::string master_addr;
  int master_port = 0;
  double launch_time = 0;               // seconds since the epoch
  std::optional<int> terminal_columns;  // of the launcher's output, where rank 0 is there
  RestartAttempt attempt = {};
  bool operator==(const StartRanks&) const = default;
};
struct Suspend {  // ranks stop, or go on, with the launcher
  bool stop = false;
  bool operator==(const Suspend&) const = default;
};
struct WindowUpdate {  // so much of the lines' text went on its way, and as much may come
  uint64_t bytes = 0;
  bool operator==(const WindowUpdate&) const = default;
};
struct Drain {  // no rank is left: end what they left behind, tell what they printed
  bool operator==(const Drain&) const = default;
};
struct Shutdown {  // the run is over, or goes on without this host: the agent ends
  int status = 0;
  std::string why = {};  // empty: there is nothing to say
  bool operator==(const Shutdown&) const = default;
};

// --- from both ---

struct Heartbeat {
  bool operator==(const Heartbeat&) const = default;
};

// Beside these: RanksPolled, and SignalReceived from an agent that was sent a signal; SignalRanks
// from the launcher.
using Message = std::variant<Hello, Join, Problems, Ready, OutputLines, Warning, Drained,
                             RanksPolled, SignalReceived, RemoteJob, StartRanks, Suspend,
                             WindowUpdate, Drain, Shutdown, SignalRanks, Heartbeat>;

std::string encode(const Message& message);

// Throws Error on anything but the bytes of one message.
Message decode(std::string_view bytes);

// The longest text, in bytes, and the longest list of texts that make_showable() leaves.
inline constexpr size_t kMaxTextBytes = 4000, kMaxTexts = 1024;

// Makes the texts of a message from another host printable as printable_message() does, and cuts
// texts and lists of texts at these sizes. Leaves RemoteJob, whose arguments, paths and variables
// are bytes, and OutputLines, which are what ranks print.
void make_showable(Message& message);

}  // namespace zeroth::launcher
