// The processes that start agents: ssh, pdsh, mpirun, srun. Their output is shown; when one exits,
// its last line gives the reason.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/backends/node_backend.h"
#include "launcher/run/output.h"
#include "launcher/run/rank_process.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {

// LaunchProcesses owns these processes. They die with the calling thread, and at the latest with
// this object. Callbacks run in the io_context's thread.
class LaunchProcesses {
 public:
  struct LaunchHandlers {
    // Receives an output line, prefixed with the host if the process serves a single one.
    std::function<void(const std::string&)> on_line;
    // Called when a process exits, with the nodes whose agents it was to start and how it ended.
    std::function<void(const std::vector<int>& hosts, bool failed, const std::string& how)> on_end;
  };

  // `hosts` are the names of the nodes. `zeroth_directory` is the directory of the zeroth
  // executable.
  LaunchProcesses(boost::asio::io_context& io, std::vector<std::string> hosts,
                  std::filesystem::path zeroth_directory, LaunchHandlers handlers);
  LaunchProcesses(const LaunchProcesses&) = delete;
  LaunchProcesses& operator=(const LaunchProcesses&) = delete;
  ~LaunchProcesses();

  // Throws ProgramError if a program is missing.
  void start(const AgentCommand& command);
  // Adds a node with the next index.
  void add_host(const std::string& name) { hosts_.push_back(name); }
  void set_handlers(LaunchHandlers handlers) { handlers_ = std::move(handlers); }
  // Calls back when no process runs, or after `limit`, when the remaining ones are killed by
  // SIGKILL.
  void when_ended(std::chrono::milliseconds limit, std::function<void()> callback);

 private:
  struct LaunchProcess;

  void wait_for_children();
  void poll_children();

  boost::asio::io_context& io_;
  std::vector<std::string> hosts_;
  std::filesystem::path zeroth_directory_;
  LaunchHandlers handlers_;
  boost::asio::signal_set children_;
  SuspendableTimer limit_;
  std::vector<std::unique_ptr<LaunchProcess>> processes_;
  std::function<void()> when_ended_;
};

}  // namespace zeroth::launcher
