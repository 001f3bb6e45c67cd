// One rank as a process: its start, its exit, its process group.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/machine/file_descriptor.h"
#include "launcher/run/exit_status.h"
#include "launcher/run/rank_plan.h"

namespace zeroth::launcher {

struct Program {
  std::filesystem::path file;
  std::vector<std::string> command;  // argv: PROGRAM as it was typed, and its arguments
};

// Finds the program of `command` (find_program.h); `zeroth_directory` is the directory of the
// zeroth executable. Throws ProgramError.
Program make_program(const std::vector<std::string>& command,
                     const std::filesystem::path& zeroth_directory);

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
// Makes a pipe that exec closes. Throws Error.
Pipe make_pipe();

// RankProcess owns the process and its group. The process dies with the thread that started it,
// which must therefore be the main thread. The pid stays in use (a zombie) until kill_and_reap(),
// so the group's id never belongs to another process.
class RankProcess {
 public:
  // Returns once the program runs. Its input is `input`, not owned; without one rank 0 has the
  // launcher's input, unless that is a terminal, and the other ranks have none. Throws ProgramError
  // if the program cannot be executed, Error if the rank cannot be set up.
  static RankProcess start(const Program& program, const RankSpec& spec, int input = -1);

  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess() { kill_and_reap(); }

  // Returns how the process ended; empty while it runs. Never blocks.
  std::optional<ExitStatus> poll_exit() const;

  // Returns whether the process is stopped by a signal (SIGSTOP, SIGTTIN, ...) or a debugger. Never
  // blocks.
  bool is_stopped() const;

  // Returns whether the process catches this signal, or blocks it (but not all signals) to wait for
  // it. Never blocks.
  bool handles(int signal) const;

  void signal_group(int signal) const;

  // Sends SIGKILL to the rest of the group, then waits for the process (not for its descendants).
  // Has no effect after the first call.
  void kill_and_reap();

  pid_t pid() const { return pid_; }  // -1 once reaped

  // Read ends; the caller may move them out.
  FileDescriptor out;
  FileDescriptor err;

 private:
  RankProcess(pid_t pid, FileDescriptor out_end, FileDescriptor err_end);

  pid_t pid_;
};

}  // namespace zeroth::launcher
