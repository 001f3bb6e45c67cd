// The processes that start agents: ssh, pdsh, mpirun, srun. What they print is shown, and where one
// ends its last line says why.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cluster/node_backend.h"
#include "launcher/run/rank_process.h"
#include "launcher/run/rank_stream.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {

// Callbacks run in the io_context's thread. They die with the calling thread, and by the end of
// this.
class LaunchProcesses {
 public:
  struct LaunchHandlers {
    // A line of one of them, with its host before it where it has a single one.
    std::function<void(const std::string&)> on_line;
    // One has ended: whose agents it should have started, whether it failed, and how it ended.
    std::function<void(const std::vector<int>& hosts, bool failed, const std::string& how)> on_end;
  };

  // `hosts`: their names. `zeroth_directory`: that of zeroth itself.
  LaunchProcesses(boost::asio::io_context& io, std::vector<std::string> hosts,
                  std::filesystem::path zeroth_directory, LaunchHandlers handlers);
  LaunchProcesses(const LaunchProcesses&) = delete;
  LaunchProcesses& operator=(const LaunchProcesses&) = delete;
  ~LaunchProcesses();

  // Throws ProgramError where a program is not there.
  void start(const AgentCommand& command);
  // One more, numbered behind those that are known.
  void add_host(const std::string& name) { hosts_.push_back(name); }
  void set_handlers(LaunchHandlers handlers) { handlers_ = std::move(handlers); }
  // Calls back when none runs, or after `limit`, when those that do are ended by SIGKILL.
  void when_ended(std::chrono::milliseconds limit, std::function<void()> callback);

 private:
  class Output;
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
