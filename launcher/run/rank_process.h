// One rank as a process: its start, its end, its process group.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "launcher/run/exit_status.h"
#include "launcher/run/rank_plan.h"

namespace zeroth::launcher {

struct Program {
  std::filesystem::path file;
  std::vector<std::string> command;  // argv: PROGRAM as it was typed, and its arguments
};

// Owns the process and its group. The process dies with the thread that started it, so that must be
// the main thread. The pid stays taken (a zombie) until kill_and_reap(), so the group's number
// never means somebody else.
class RankProcess {
 public:
  // Returns once the program runs. Its input is `input`, not owned; without one rank 0 has the
  // launcher's, unless that is a terminal, and the others none. Throws ProgramError if it cannot be
  // executed, Error if the rank cannot be set up.
  static RankProcess start(const Program& program, const RankSpec& spec, int input = -1);

  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess() { kill_and_reap(); }

  // How the process ended; empty while it runs. Never blocks.
  std::optional<ExitStatus> poll_exit() const;

  // Stopped by a signal (SIGSTOP, SIGTTIN, ...) or a debugger. Never blocks.
  bool is_stopped() const;

  // Whether the process catches this signal, or blocks it, but not all signals, to wait for it.
  // Never blocks.
  bool handles(int signal) const;

  void signal_group(int signal) const;

  // SIGKILL to what is left of the group, then waits for the process (not for its descendants).
  // Once is enough.
  void kill_and_reap();

  pid_t pid() const { return pid_; }  // -1 once reaped

  // Read ends; the caller may take them over.
  FileDescriptor out;
  FileDescriptor err;

 private:
  RankProcess(pid_t pid, FileDescriptor out_end, FileDescriptor err_end);

  pid_t pid_;
};

}  // namespace zeroth::launcher
